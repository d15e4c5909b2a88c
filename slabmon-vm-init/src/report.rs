//! What the machine says on its console: lines that begin with a mark, which nothing else prints.

use std::fmt;

/// How every report begins.
pub const MARK: &str = "@@slabmon-vm";

/// One line from the machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// It is up, and this is its kernel's release.
    Up {
        /// As `uname -r`.
        release: String,
    },
    /// It cannot go on.
    Stuck {
        /// Why, in one line.
        reason: String,
    },
    /// A test begins; what follows on the console is its output.
    Begins {
        /// Name of the test.
        test: String,
    },
    /// A test has ended. Each is said once more at the end, in case the kernel wrote over the first.
    Ended {
        /// How.
        verdict: Verdict,
        /// Name of the test.
        test: String,
        /// How long it took, by the machine's own clock.
        milliseconds: u64,
    },
    /// All have ended; what the kernel thinks of itself (Documentation/admin-guide/tainted-kernels.rst).
    Done {
        /// How many tests were run.
        tests: usize,
        /// `/proc/sys/kernel/tainted`.
        taint: u64,
    },
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// With success.
    Passed,
    /// With a failure.
    Failed,
    /// Not within its time.
    TimedOut,
}

impl Verdict {
    const ALL: [Self; 3] = [Self::Passed, Self::Failed, Self::TimedOut];

    /// In one word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::TimedOut => "timed-out",
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Up { release } => write!(f, "{MARK} up {release} ;"),
            Self::Stuck { reason } => write!(f, "{MARK} stuck {reason} ;"),
            Self::Begins { test } => write!(f, "{MARK} begins {test} ;"),
            Self::Ended { verdict, test, milliseconds } => {
                write!(f, "{MARK} ended {} {milliseconds} {test} ;", verdict.word())
            }
            Self::Done { tests, taint } => write!(f, "{MARK} done {tests} {taint} ;"),
        }
    }
}

impl Report {
    /// Reads a line of the console. `None` if it is no report, or one that something else was written into.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let (_, said) = line.split_once(MARK)?;
        let (kind, rest) = said.trim_end().strip_suffix(" ;")?.strip_prefix(' ')?.split_once(' ')?;
        match kind {
            "up" => Some(Self::Up { release: one_word(rest)? }),
            "stuck" => Some(Self::Stuck { reason: rest.to_owned() }),
            "begins" => Some(Self::Begins { test: one_word(rest)? }),
            "ended" => {
                let mut words = rest.split(' ');
                let word = words.next()?;
                let verdict = Verdict::ALL.into_iter().find(|verdict| verdict.word() == word)?;
                let milliseconds = words.next()?.parse().ok()?;
                let test = words.next().filter(|name| !name.is_empty())?.to_owned();
                words.next().is_none().then_some(Self::Ended { verdict, test, milliseconds })
            }
            "done" => {
                let (tests, taint) = rest.split_once(' ')?;
                Some(Self::Done { tests: tests.parse().ok()?, taint: taint.parse().ok()? })
            }
            _ => None,
        }
    }
}

fn one_word(text: &str) -> Option<String> {
    (!text.is_empty() && !text.contains(' ')).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Report> {
        let mut all = vec![
            Report::Up { release: "6.1.0-50-cloud-amd64".into() },
            Report::Stuck { reason: "mount /proc: no such device".into() },
            Report::Begins { test: "objects::pipes".into() },
            Report::Done { tests: 12, taint: 512 },
        ];
        all.extend(Verdict::ALL.map(|verdict| Report::Ended { verdict, test: "a::b".into(), milliseconds: 1234 }));
        all
    }

    #[test]
    fn what_is_said_is_understood() {
        for report in all() {
            assert_eq!(Report::parse(&report.to_string()), Some(report.clone()));
            // The console ends lines its own way, and the kernel may have begun one.
            assert_eq!(Report::parse(&format!("[    1.234567] {report}\r")), Some(report));
        }
    }

    #[test]
    fn a_line_that_something_was_written_into_is_no_report() {
        for line in [
            "",
            "test objects::pipes ... ok",
            "@@slabmon-vm",
            "@@slabmon-vm ended passed 12 a::b",
            "@@slabmon-vm ended pas[    1.234567] sed 12 a::b ;",
            "@@slabmon-vm ended passed 12 a::[    1.234567] b ;",
            "@@slabmon-vm done 12 ;",
        ] {
            assert_eq!(Report::parse(line), None, "{line}");
        }
    }
}
