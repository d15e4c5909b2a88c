//! Steps that all run, whatever fails before them, and one summary at the end.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The steps so far.
#[derive(Debug, Default)]
pub struct Suite {
    outcomes: Vec<Outcome>,
}

#[derive(Debug)]
struct Outcome {
    name: &'static str,
    took: Duration,
    failure: Option<String>,
}

impl Suite {
    /// Runs one step and keeps how it went.
    pub fn step(&mut self, name: &'static str, step: impl FnOnce() -> Result<()>) {
        println!("\n=== {name}");
        let started = Instant::now();
        let failure = step().err().map(|error| format!("{error:#}"));
        if let Some(failure) = &failure {
            println!("FAILED: {name}: {failure}");
        }
        self.outcomes.push(Outcome { name, took: started.elapsed(), failure });
    }

    /// The summary: one line a step, each failure once more, and the closing line.
    fn summary(&self) -> String {
        let mut text = String::from("\n=== summary\n");
        for outcome in &self.outcomes {
            let word = if outcome.failure.is_some() { "FAILED" } else { "ok" };
            text += &format!("{word:<7} {:>6.1} s  {}\n", outcome.took.as_secs_f64(), outcome.name);
        }
        for outcome in &self.outcomes {
            if let Some(failure) = &outcome.failure {
                text += &format!("\n{}: {failure}\n", outcome.name);
            }
        }
        let failed = self.failed();
        text + &format!("\nsteps: {} passed, {failed} failed\n", self.outcomes.len() - failed)
    }

    fn failed(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.failure.is_some()).count()
    }

    /// Prints the summary, and fails if a step failed or none ran.
    pub fn finish(self) -> Result<()> {
        print!("{}", self.summary());
        if self.outcomes.is_empty() {
            bail!("no step was run");
        }
        match self.failed() {
            0 => Ok(()),
            failed => bail!("{failed} of {} steps failed", self.outcomes.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_does_not_keep_the_next_from_running() {
        let mut suite = Suite::default();
        let mut second_ran = false;
        suite.step("first", || bail!("broken"));
        suite.step("second", || {
            second_ran = true;
            Ok(())
        });
        assert!(second_ran);
        let summary = suite.summary();
        assert!(summary.contains("\nfirst: broken\n"), "{summary}");
        assert!(summary.ends_with("\nsteps: 1 passed, 1 failed\n"), "{summary}");
        assert!(suite.finish().is_err());
    }

    #[test]
    fn no_step_at_all_is_a_failure() {
        assert!(Suite::default().finish().is_err());
    }

    #[test]
    fn steps_that_pass_are_a_pass() {
        let mut suite = Suite::default();
        suite.step("only", || Ok(()));
        assert!(suite.finish().is_ok());
    }
}
