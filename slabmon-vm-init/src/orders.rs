//! What the machine is to run: a text file, one `key value` a line.

use std::{path::PathBuf, time::Duration};

/// Where the machine finds its orders.
pub const PATH: &str = "/vm/orders";

/// What the machine is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orders {
    /// The test binary, built by `cargo test`.
    pub tests: PathBuf,
    /// How long one test may take.
    pub test_limit: Duration,
    /// Folders of programs, for the tests' `PATH`.
    pub programs: String,
    /// Tests whose name holds one of these are run; all, if there is none.
    pub only: Vec<String>,
    /// Tests of exactly these names are not run.
    pub skip: Vec<String>,
}

/// A line that is no order.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{PATH}: {problem}")]
pub struct OrdersError {
    problem: String,
}

impl Orders {
    /// The file's text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "tests {}\ntest_limit_seconds {}\nprograms {}\n",
            self.tests.display(),
            self.test_limit.as_secs(),
            self.programs
        );
        for part in &self.only {
            text += &format!("only {part}\n");
        }
        for name in &self.skip {
            text += &format!("skip {name}\n");
        }
        text
    }

    /// Reads the file's text.
    ///
    /// # Errors
    /// A line that is no order, or an order that is missing.
    pub fn parse(text: &str) -> Result<Self, OrdersError> {
        let wrong = |problem: String| OrdersError { problem };
        let (mut tests, mut limit, mut programs) = (None, None, None);
        let (mut only, mut skip) = (Vec::new(), Vec::new());
        for line in text.lines() {
            let (key, value) = line.split_once(' ').ok_or_else(|| wrong(format!("`{line}` has no value")))?;
            match key {
                "tests" => tests = Some(PathBuf::from(value)),
                "test_limit_seconds" => {
                    let seconds = value.parse().map_err(|_| wrong(format!("`{line}` is no number of seconds")))?;
                    limit = Some(Duration::from_secs(seconds));
                }
                "programs" => programs = Some(value.to_owned()),
                "only" => only.push(value.to_owned()),
                "skip" => skip.push(value.to_owned()),
                _ => return Err(wrong(format!("`{key}` is no order"))),
            }
        }
        let missing = |key: &str| wrong(format!("`{key}` is missing"));
        Ok(Self {
            tests: tests.ok_or_else(|| missing("tests"))?,
            test_limit: limit.ok_or_else(|| missing("test_limit_seconds"))?,
            programs: programs.ok_or_else(|| missing("programs"))?,
            only,
            skip,
        })
    }

    /// Whether a test of this name is to be run.
    #[must_use]
    pub fn covers(&self, test: &str) -> bool {
        let asked = self.only.is_empty() || self.only.iter().any(|part| test.contains(part.as_str()));
        asked && !self.skip.iter().any(|name| name == test)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn orders() -> Orders {
        Orders {
            tests: "/t/live".into(),
            test_limit: Duration::from_secs(90),
            programs: "/usr/bin:/bin".into(),
            only: vec!["objects".into(), "daemon".into()],
            skip: vec!["daemon::one".into()],
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        assert_eq!(Orders::parse(&orders().to_text()).unwrap(), orders());
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        for (text, complaint) in [
            ("tests", "/vm/orders: `tests` has no value"),
            ("dance now", "/vm/orders: `dance` is no order"),
            ("test_limit_seconds soon", "/vm/orders: `test_limit_seconds soon` is no number of seconds"),
            ("tests /t", "/vm/orders: `test_limit_seconds` is missing"),
        ] {
            assert_eq!(Orders::parse(text).unwrap_err().to_string(), complaint);
        }
    }

    #[test]
    fn a_test_is_asked_for_by_part_of_its_name_and_left_out_by_its_whole_name() {
        assert!(orders().covers("objects::pipes"));
        assert!(orders().covers("daemon::one_more"));
        assert!(!orders().covers("daemon::one"));
        assert!(!orders().covers("perf::totals"));
        assert!(Orders { only: Vec::new(), ..orders() }.covers("perf::totals"));
    }
}
