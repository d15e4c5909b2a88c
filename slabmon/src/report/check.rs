//! `slabmon check`: what this host has, what it lacks, why, and what to do.

use super::table::{Align, render, safe};
use crate::model::snapshot::Feature;

/// What stands in a feature's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The kernel has not got it, or forbids it to everyone (lockdown).
    Kernel,
    /// This process may not; another user, capability or file mode would do.
    Permission,
    /// The operator switched it off.
    Configuration,
}

/// A feature and what it means to the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The feature, its state, its reason and its remedy.
    pub feature: Feature,
    /// Whether the daemon cannot do its main job without it.
    pub required: bool,
    /// What stands in its way; `None` if it is on, or if that is not known.
    pub obstacle: Option<Obstacle>,
}

/// The answer as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All that is required is there.
    Ready,
    /// Something required is missing that permission would give.
    NotPermitted,
    /// Something required is missing that permission would not give.
    KernelCannot,
}

/// The table, the verdict in a sentence, and the verdict.
///
/// The kernel's refusal outweighs a missing permission: granting that would not help. What is off by configuration
/// is as the operator wants it, and is no obstacle.
pub fn check(findings: &[Finding]) -> (String, Verdict) {
    let missing = |finding: &&Finding| {
        finding.required && !finding.feature.enabled && finding.obstacle != Some(Obstacle::Configuration)
    };
    let names = |wanted: &dyn Fn(Option<Obstacle>) -> bool| -> Vec<&str> {
        findings
            .iter()
            .filter(missing)
            .filter(|finding| wanted(finding.obstacle))
            .map(|finding| finding.feature.name)
            .collect()
    };
    let not_permitted = names(&|obstacle| obstacle == Some(Obstacle::Permission));
    let impossible = names(&|obstacle| obstacle != Some(Obstacle::Permission));
    let (verdict, sentence) = if !impossible.is_empty() {
        (Verdict::KernelCannot, format!("this kernel does not offer what slabmon needs: {}", impossible.join(", ")))
    } else if !not_permitted.is_empty() {
        (Verdict::NotPermitted, format!("not permitted to this process: {}", not_permitted.join(", ")))
    } else {
        (Verdict::Ready, "all that slabmon needs is here".to_owned())
    };
    (format!("{}\n{sentence}\n", table(findings)), verdict)
}

fn table(findings: &[Finding]) -> String {
    let rows: Vec<Vec<String>> = findings
        .iter()
        .map(|finding| {
            let feature = &finding.feature;
            vec![
                feature.name.to_owned(),
                if feature.enabled { "yes" } else { "no" }.to_owned(),
                if finding.required { "yes" } else { "no" }.to_owned(),
                safe(&feature.reason),
                safe(&feature.remedy),
            ]
        })
        .collect();
    let header = [
        ("FEATURE", Align::Left),
        ("HERE", Align::Left),
        ("NEEDED", Align::Left),
        ("WHY", Align::Left),
        ("WHAT TO DO", Align::Left),
    ];
    render(&header, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(name: &'static str, enabled: bool, required: bool, obstacle: Option<Obstacle>) -> Finding {
        let feature = Feature { name, enabled, reason: "because".into(), remedy: "do this".into() };
        Finding { feature, required, obstacle }
    }

    #[test]
    fn a_host_that_lacks_only_what_is_optional_is_ready() {
        let (text, verdict) =
            check(&[finding("a", true, true, None), finding("b", false, false, Some(Obstacle::Kernel))]);
        assert_eq!(verdict, Verdict::Ready);
        assert_eq!(
            text,
            "FEATURE  HERE  NEEDED  WHY      WHAT TO DO\n\
             a        yes   yes     because  do this\n\
             b        no    no      because  do this\n\
             \n\
             all that slabmon needs is here\n"
        );
    }

    #[test]
    fn a_missing_permission_is_told_from_a_kernel_that_cannot() {
        let permission = finding("bpf", false, true, Some(Obstacle::Permission));
        let kernel = finding("btf", false, true, Some(Obstacle::Kernel));
        let unknown = finding("x", false, true, None);
        assert_eq!(check(std::slice::from_ref(&permission)).1, Verdict::NotPermitted);
        let (text, verdict) = check(&[permission, kernel, unknown]);
        assert_eq!(verdict, Verdict::KernelCannot);
        assert!(text.ends_with("this kernel does not offer what slabmon needs: btf, x\n"), "{text}");
    }

    #[test]
    fn what_the_operator_switched_off_is_no_obstacle() {
        assert_eq!(check(&[finding("a", false, true, Some(Obstacle::Configuration))]).1, Verdict::Ready);
    }
}
