//! The kernels that are tested: one of each series, from Debian's packages for clouds.

use std::{cmp::Ordering, fmt};

use clap::ValueEnum;

use super::architecture::Architecture;

/// A series of kernels that slabmon promises to run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Series {
    #[value(name = "5.10")]
    V5_10,
    #[value(name = "6.1")]
    V6_1,
    #[value(name = "6.12")]
    V6_12,
    #[value(name = "6.18")]
    V6_18,
    #[value(name = "6.19")]
    V6_19,
    #[value(name = "7.0")]
    V7_0,
    #[value(name = "7.3")]
    V7_3,
}

impl Series {
    /// Its name: the first two numbers of its versions.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V5_10 => "5.10",
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::V6_18 => "6.18",
            Self::V6_19 => "6.19",
            Self::V7_0 => "7.0",
            Self::V7_3 => "7.3",
        }
    }

    /// The release that is tested as long as it can be had.
    const fn chosen_release(self) -> &'static str {
        match self {
            Self::V5_10 => "5.10.0-32",
            Self::V6_1 => "6.1.0-50",
            Self::V6_12 => "6.12.117+deb13",
            Self::V6_18 => "6.18.15+deb13",
            Self::V6_19 => "6.19.14+deb13",
            Self::V7_0 => "7.0.13+deb13",
            Self::V7_3 => "7.3.4+deb13",
        }
    }

    /// The names that the chosen release's package may have, best first.
    pub fn chosen_packages(self, architecture: Architecture) -> [String; 2] {
        PREFIXES.map(|prefix| format!("{prefix}{}{}", self.chosen_release(), suffix(architecture)))
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the packages that hold a kernel are called. Where there is a `linux-binary-…`, the `linux-image-…` of the same
/// release holds none.
const PREFIXES: [&str; 2] = ["linux-binary-", "linux-image-"];

fn suffix(architecture: Architecture) -> String {
    format!("-cloud-{}", architecture.debian_name())
}

/// A package that may hold a kernel, as the mirror lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    /// Version of the package.
    pub version: String,
}

/// The package to take for a series.
#[derive(Debug, PartialEq, Eq)]
pub struct Choice {
    pub package: String,
    /// What to tell about it, if it is not the chosen release.
    pub remark: Option<String>,
}

/// The chosen release, or the newest of its series. `None` if the mirror has none of the series.
pub fn choose(series: Series, architecture: Architecture, listed: &[Listed]) -> Option<Choice> {
    let chosen = series.chosen_packages(architecture);
    let found = chosen.into_iter().find(|name| listed.iter().any(|package| package.name == *name));
    if let Some(package) = found {
        return Some(Choice { package, remark: None });
    }
    let mut candidates: Vec<(&Listed, &str)> = listed
        .iter()
        .filter_map(|package| Some((package, release(&package.name, architecture)?)))
        .filter(|(package, release)| is_of(series, &package.version) && release.starts_with(series.name()))
        .collect();
    candidates.sort_by(|(one, _), (other, _)| compare(&one.version, &other.version));
    let (_, newest) = candidates.pop()?;
    let names = PREFIXES.map(|prefix| format!("{prefix}{newest}{}", suffix(architecture)));
    let package = names.into_iter().find(|name| listed.iter().any(|package| package.name == *name))?;
    let remark = format!("{} is gone from the mirror; {newest} takes its place", series.chosen_release());
    Some(Choice { package, remark: Some(remark) })
}

/// `6.1.0-50` of `linux-image-6.1.0-50-cloud-amd64`. `None` for a package that holds no kernel (`linux-image-cloud-amd64`).
pub fn release(package: &str, architecture: Architecture) -> Option<&str> {
    let rest = PREFIXES.iter().find_map(|prefix| package.strip_prefix(prefix))?;
    let release = rest.strip_suffix(suffix(architecture).as_str())?;
    // `linux-image-6.1-cloud-amd64` only depends on another.
    let is_whole = release.contains('-') || release.contains('+');
    (is_whole && release.starts_with(|first: char| first.is_ascii_digit())).then_some(release)
}

fn is_of(series: Series, version: &str) -> bool {
    version.strip_prefix(series.name()).is_some_and(|rest| rest.starts_with('.'))
}

/// By the numbers in them, as far as they go.
fn compare(one: &str, other: &str) -> Ordering {
    numbers(one).cmp(&numbers(other))
}

fn numbers(version: &str) -> Vec<u64> {
    version.split(|sign: char| !sign.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn listed(packages: &[(&str, &str)]) -> Vec<Listed> {
        packages.iter().map(|&(name, version)| Listed { name: name.into(), version: version.into() }).collect()
    }

    #[test]
    fn the_chosen_release_is_taken_while_it_is_there() {
        let listed = listed(&[
            ("linux-image-6.1.0-57-cloud-amd64", "6.1.192-3"),
            ("linux-image-6.1.0-50-cloud-amd64", "6.1.176-1"),
        ]);
        let choice = choose(Series::V6_1, Architecture::X86, &listed).unwrap();
        assert_eq!(choice, Choice { package: "linux-image-6.1.0-50-cloud-amd64".into(), remark: None });
    }

    #[test]
    fn a_release_that_is_gone_gives_way_to_the_newest_of_its_series_and_it_is_said() {
        let listed = listed(&[
            ("linux-image-6.1-cloud-amd64", "6.1.999-1"),
            ("linux-image-6.1.0-9-cloud-amd64", "6.1.27-1"),
            ("linux-image-6.1.0-57-cloud-amd64", "6.1.192-3"),
            ("linux-image-6.1.0-57-cloud-amd64-unsigned", "6.1.192-3"),
            ("linux-image-6.12.118+deb13-cloud-amd64", "6.12.118-1"),
            ("linux-image-6.1.0-60-cloud-arm64", "6.1.200-1"),
        ]);
        let choice = choose(Series::V6_1, Architecture::X86, &listed).unwrap();
        assert_eq!(choice.package, "linux-image-6.1.0-57-cloud-amd64");
        assert_eq!(choice.remark.unwrap(), "6.1.0-50 is gone from the mirror; 6.1.0-57 takes its place");
        assert_eq!(choose(Series::V7_3, Architecture::X86, &listed), None);
    }

    #[test]
    fn the_package_with_the_kernel_in_it_goes_before_the_one_without() {
        let listed = listed(&[
            ("linux-image-7.3.9+deb13-cloud-arm64", "7.3.9-1~bpo13+1"),
            ("linux-binary-7.3.9+deb13-cloud-arm64", "7.3.9-1~bpo13+1"),
        ]);
        let choice = choose(Series::V7_3, Architecture::Arm, &listed).unwrap();
        assert_eq!(choice.package, "linux-binary-7.3.9+deb13-cloud-arm64");
    }
}
