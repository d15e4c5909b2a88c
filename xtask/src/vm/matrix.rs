//! The result of all machines: a row a test, a column a kernel.

use std::{collections::BTreeSet, time::Duration};

use slabmon_vm_init::Verdict;

use super::console::{Console, Test};

/// How it went with one kernel.
#[derive(Debug)]
pub struct Column {
    /// The kernel's series.
    pub name: String,
    /// What the machine said, or why there was none.
    pub outcome: Result<Console, String>,
    pub took: Duration,
}

impl Column {
    fn is_good(&self) -> bool {
        self.outcome.as_ref().is_ok_and(Console::is_good)
    }

    fn test(&self, name: &str) -> Option<&Test> {
        self.outcome.as_ref().ok()?.tests.get(name)
    }
}

/// Whether there is a machine, and nothing was wrong with any.
pub fn is_good(columns: &[Column]) -> bool {
    !columns.is_empty() && columns.iter().all(Column::is_good)
}

/// The matrix.
pub fn table(columns: &[Column]) -> String {
    let names: BTreeSet<&str> = columns
        .iter()
        .filter_map(|column| column.outcome.as_ref().ok())
        .flat_map(|console| console.tests.keys())
        .map(String::as_str)
        .collect();
    let width = names.iter().map(|name| name.len()).max().unwrap_or_default().max(MACHINE.len());
    let row = |name: &str, cell: &dyn Fn(&Column) -> String| {
        let cells: String = columns.iter().map(|column| format!(" {:>8}", cell(column))).collect();
        format!("{}\n", format!("{name:<width$}{cells}").trim_end())
    };
    let mut text = row("", &|column| column.name.clone());
    for name in names {
        text += &row(name, &|column| word(column.test(name)).to_owned());
    }
    text += &row(MACHINE, &|column| machine_word(column).to_owned());
    text + &row("seconds", &|column| format!("{:.0}", column.took.as_secs_f64()))
}

const MACHINE: &str = "the machine itself";

fn word(test: Option<&Test>) -> &'static str {
    match test.map(|test| test.verdict) {
        None => "-",
        Some(None) => "lost",
        Some(Some(Verdict::Passed)) => "ok",
        Some(Some(Verdict::Failed)) => "FAILED",
        Some(Some(Verdict::TimedOut)) => "TIME",
    }
}

fn machine_word(column: &Column) -> &'static str {
    match &column.outcome {
        Ok(console) if console.troubles.is_empty() => "ok",
        _ => "FAILED",
    }
}

/// How many lines of a failed test's output are shown, of its beginning and of its end; the log has all.
const SHOWN_LINES: [usize; 2] = [10, 30];

/// What the test harness says of every failure.
const HARNESS: [&str; 6] =
    ["running 1 test", "FAILED", "failures:", "test result: ", "note: run with", "error: test failed"];

/// The output without what says nothing, and without its middle if it is long.
fn excerpt(output: &[String]) -> Vec<String> {
    let says_something =
        |line: &&String| !line.trim().is_empty() && !HARNESS.iter().any(|words| line.starts_with(words));
    let lines: Vec<String> = output.iter().filter(says_something).cloned().collect();
    let [first, last] = SHOWN_LINES;
    match lines.len().checked_sub(first + last) {
        None | Some(0) => lines,
        Some(hidden) => {
            let gap = [format!("({hidden} lines, see the log)")];
            let (start, end) = (lines.iter().take(first), lines.iter().skip(first + hidden));
            start.chain(&gap).chain(end).cloned().collect()
        }
    }
}

/// Everything that went wrong, kernel by kernel.
pub fn failures(columns: &[Column]) -> String {
    let mut text = String::new();
    for column in columns {
        let console = match &column.outcome {
            Ok(console) => console,
            Err(error) => {
                text += &format!("\n{}: {error}\n", column.name);
                continue;
            }
        };
        for trouble in &console.troubles {
            text += &format!("\n{}: {trouble}\n", column.name);
        }
        for (name, test) in console.tests.iter().filter(|(_, test)| test.verdict != Some(Verdict::Passed)) {
            text += &format!("\n{}: {name}: {}\n", column.name, word(Some(test)));
            text.extend(excerpt(&test.output).iter().map(|line| format!("    {line}\n")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<Column> {
        let test = |verdict| Test { verdict, milliseconds: 5, output: vec!["why".into()] };
        let good = Console { tests: [("a".to_owned(), test(Some(Verdict::Passed)))].into(), ..Console::default() };
        let bad = Console {
            tests: [("a".to_owned(), test(Some(Verdict::Failed))), ("b".to_owned(), test(None))].into(),
            troubles: vec!["the kernel said: x".into()],
            ..Console::default()
        };
        let column = |name: &str, outcome| Column { name: name.into(), outcome, took: Duration::from_secs(9) };
        vec![column("6.1", Ok(good)), column("7.3", Ok(bad)), column("7.0", Err("no kernel".into()))]
    }

    #[test]
    fn every_test_has_a_row_and_every_kernel_a_column() {
        let expected = "                        6.1      7.3      7.0\n\
                        a                        ok   FAILED        -\n\
                        b                         -     lost        -\n\
                        the machine itself       ok   FAILED   FAILED\n\
                        seconds                   9        9        9\n";
        assert_eq!(table(&columns()), expected);
    }

    #[test]
    fn every_failure_is_told_with_its_kernel() {
        let expected =
            "\n7.3: the kernel said: x\n\n7.3: a: FAILED\n    why\n\n7.3: b: lost\n    why\n\n7.0: no kernel\n";
        assert_eq!(failures(&columns()), expected);
    }

    #[test]
    fn a_long_output_loses_its_middle_and_what_the_harness_says_of_every_failure() {
        let mut output: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        output.extend(["", "failures:", "test result: FAILED. 0 passed"].map(String::from));
        let shown = excerpt(&output);
        assert_eq!(shown.len(), 41);
        assert_eq!(
            [shown[9].as_str(), &shown[10], &shown[11], &shown[40]],
            ["9", "(60 lines, see the log)", "70", "99"]
        );
        assert_eq!(excerpt(&output[..40]).len(), 40);
    }

    #[test]
    fn one_bad_machine_or_none_at_all_is_a_failure() {
        let mut columns = columns();
        assert!(!is_good(&columns));
        columns.truncate(1);
        assert!(is_good(&columns));
        assert!(!is_good(&[]));
    }
}
