//! What a test machine said on its console, and what is wrong with it.

use std::{collections::BTreeMap, sync::LazyLock};

use regex::Regex;
use slabmon_vm_init::{Report, Verdict};

/// What was said.
#[derive(Debug, Default, PartialEq)]
pub struct Console {
    /// The kernel's release, once it is up.
    pub release: Option<String>,
    /// The tests that were begun, by name.
    pub tests: BTreeMap<String, Test>,
    /// What is wrong with the machine itself, apart from failed tests.
    pub troubles: Vec<String>,
}

/// One test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Test {
    /// `None` if it was begun and nothing more was heard of it.
    pub verdict: Option<Verdict>,
    /// By the machine's clock.
    pub milliseconds: u64,
    /// What it and the kernel printed meanwhile.
    pub output: Vec<String>,
}

/// A line of the kernel's log that tells of a fault in it: a WARN, an oops, a panic or what leads to one.
static FAULT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let words = [
        "WARNING: ",
        "BUG: ",
        "kernel BUG at",
        "Oops",
        "Kernel panic",
        "general protection fault",
        "Unable to handle kernel",
        "Internal error: ",
        "UBSAN: ",
        "KASAN: ",
        "KFENCE: ",
        "refcount_t: ",
        "list_add corruption",
        "list_del corruption",
        "page allocation failure",
        "Out of memory: ",
    ];
    Regex::new(&format!(r"\[ *\d+\.\d{{6}}\](\[ *[TC]\d+\])? .{{0,40}}({})", words.join("|"))).ok()
});

/// Bits of `/proc/sys/kernel/tainted`: bad page, oops, WARN (Documentation/admin-guide/tainted-kernels.rst).
const TAINT_FAULTS: [(u64, &str); 3] = [(1 << 5, "bad page"), (1 << 7, "oops"), (1 << 9, "WARN")];

impl Console {
    /// Reads all that was said; `cut` if the machine was ended before it ended by itself.
    pub fn read(text: &str, cut: bool) -> Self {
        let mut console = Self::default();
        let mut current: Option<String> = None;
        let mut done = None;
        for line in text.lines().map(|line| line.trim_end_matches('\r')) {
            if FAULT.as_ref().is_some_and(|fault| fault.is_match(line)) {
                console.troubles.push(format!("the kernel said: {}", line.trim()));
            }
            match Report::parse(line) {
                Some(Report::Up { release }) => console.release = Some(release),
                Some(Report::Stuck { reason }) => console.troubles.push(format!("the machine is stuck: {reason}")),
                Some(Report::Begins { test }) => {
                    console.tests.entry(test.clone()).or_default();
                    current = Some(test);
                }
                Some(Report::Ended { verdict, test, milliseconds }) => {
                    let ended = console.tests.entry(test).or_default();
                    (ended.verdict, ended.milliseconds) = (Some(verdict), milliseconds);
                    current = None;
                }
                Some(Report::Done { tests, taint }) => done = Some((tests, taint)),
                None => {
                    if let Some(test) = current.as_ref().and_then(|name| console.tests.get_mut(name)) {
                        test.output.push(line.to_owned());
                    }
                }
            }
        }
        console.judge(done, cut);
        console
    }

    fn judge(&mut self, done: Option<(usize, u64)>, cut: bool) {
        if self.release.is_none() {
            self.troubles.push("the kernel never started its first process".to_owned());
        }
        if cut {
            self.troubles.push("the machine's time was up".to_owned());
        }
        match done {
            None => self.troubles.push("the machine ended before its tests did".to_owned()),
            Some((tests, _)) if tests == 0 || tests != self.tests.len() => {
                self.troubles.push(format!("the machine ran {tests} tests, {} of them were heard", self.tests.len()));
            }
            Some(_) => {}
        }
        for (bit, fault) in TAINT_FAULTS {
            if done.is_some_and(|(_, taint)| taint & bit != 0) {
                self.troubles.push(format!("the kernel is tainted by: {fault}"));
            }
        }
    }

    /// Whether all is well.
    pub fn is_good(&self) -> bool {
        self.troubles.is_empty() && self.tests.values().all(|test| test.verdict == Some(Verdict::Passed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[    0.000000] Linux version 6.1\r\n\r\n@@slabmon-vm up 6.1.0-50 ;\r\n\
        @@slabmon-vm begins a::one ;\r\nrunning 1 test\r\n@@slabmon-vm ended passed 12 a::one ;\r\n\
        @@slabmon-vm begins a::two ;\r\nassertion failed\r\n@@slabmon-vm ended failed 7 a::two ;\r\n\
        @@slabmon-vm ended passed 12 a::one ;\r\n@@slabmon-vm ended failed 7 a::two ;\r\n@@slabmon-vm done 2 0 ;\r\n";

    fn troubles(text: &str, cut: bool) -> Vec<String> {
        Console::read(text, cut).troubles
    }

    #[test]
    fn each_test_has_its_verdict_and_its_output() {
        let console = Console::read(GOOD, false);
        assert_eq!(console.release.as_deref(), Some("6.1.0-50"));
        assert_eq!(console.troubles, [""; 0]);
        let expected =
            Test { verdict: Some(Verdict::Failed), milliseconds: 7, output: vec!["assertion failed".into()] };
        assert_eq!(console.tests.get("a::two"), Some(&expected));
        assert!(!console.is_good());
        assert!(Console::read(&GOOD.replace("failed 7", "passed 7"), false).is_good());
    }

    #[test]
    fn a_verdict_that_the_kernel_wrote_over_is_found_in_the_repetition() {
        let text = GOOD.replacen("ended passed 12 a::one", "ended pas[    9.000000] random: sed 12 a::one", 1);
        let console = Console::read(&text, false);
        assert_eq!(console.tests.get("a::one").and_then(|test| test.verdict), Some(Verdict::Passed));
    }

    #[test]
    fn a_machine_that_never_came_up_or_fell_silent_is_told() {
        let all = troubles("[    0.000000] Linux version 6.1\n", true);
        assert_eq!(all.len(), 3, "{all:?}");
        let cut_off = GOOD.split("@@slabmon-vm ended failed").next().unwrap_or_default();
        assert_eq!(troubles(cut_off, false), ["the machine ended before its tests did"]);
        assert_eq!(Console::read(cut_off, false).tests.get("a::two").and_then(|test| test.verdict), None);
    }

    #[test]
    fn no_tests_at_all_is_no_success() {
        let text = "@@slabmon-vm up 6.1.0-50 ;\n@@slabmon-vm done 0 0 ;\n";
        assert_eq!(troubles(text, false), ["the machine ran 0 tests, 0 of them were heard"]);
    }

    #[test]
    fn a_fault_of_the_kernel_is_told_wherever_it_stands_and_a_tests_own_words_are_not_one() {
        for line in [
            "[   12.345678] WARNING: CPU: 0 PID: 1 at mm/slub.c:1 f+0x1/0x2",
            "[   12.345678][  T123] BUG: kernel NULL pointer dereference, address: 0",
            "[   12.345678] int3: 0000 [#1] Oops: PREEMPT SMP",
            "test x ... [  112.345678] Kernel panic - not syncing: Fatal exception",
            "[    1.234567] ------ kernel BUG at mm/slub.c:305!",
        ] {
            let text = format!("{line}\n{GOOD}");
            assert_eq!(troubles(&text, false), [format!("the kernel said: {line}")]);
        }
        assert_eq!(troubles(&format!("WARNING: not the kernel's\n{GOOD}"), false), [""; 0]);
        assert_eq!(troubles(&GOOD.replace("done 2 0", "done 2 512"), false), ["the kernel is tainted by: WARN"]);
    }
}
