//! Where this system gets Debian's packages from, read from its own apt configuration.

use std::{env, fs, path::Path};

use anyhow::{Result, bail};

/// Names the mirror where the system's configuration does not.
const VARIABLE: &str = "SLABMON_DEBIAN_MIRROR";

/// Debian's releases that the configuration of a Debian system may name.
const RELEASES: [&str; 9] =
    ["bullseye", "bookworm", "trixie", "forky", "sid", "oldstable", "stable", "testing", "unstable"];

/// The addresses of Debian's two archives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    pub main: String,
    pub security: String,
}

/// One source of packages.
#[derive(Debug, Default, PartialEq, Eq)]
struct Source {
    address: String,
    suites: Vec<String>,
    components: Vec<String>,
}

impl Mirror {
    /// Of the system, or as the environment says.
    pub fn find() -> Result<Self> {
        if let Ok(main) = env::var(VARIABLE) {
            let main = main.trim_end_matches('/').to_owned();
            return Ok(Self { security: format!("{main}-security"), main });
        }
        let mut sources = Vec::new();
        for (path, text) in configuration(Path::new("/etc/apt")) {
            sources.extend(if path.ends_with(".sources") { paragraphs(&text) } else { lines(&text) });
        }
        match Self::among(&sources) {
            Some(mirror) => Ok(mirror),
            None => bail!("/etc/apt names no mirror of Debian; name one in {VARIABLE}, as http://HOST/debian"),
        }
    }

    fn among(sources: &[Source]) -> Option<Self> {
        let with = |is_wanted: fn(&str) -> bool| {
            let has_main = |source: &&Source| source.components.iter().any(|component| component == "main");
            let mut fitting =
                sources.iter().filter(has_main).filter(|source| source.suites.iter().any(|suite| is_wanted(suite)));
            fitting.next().map(|source| source.address.trim_end_matches('/').to_owned())
        };
        let main = with(|suite| RELEASES.contains(&suite))?;
        let security = with(|suite| suite.strip_suffix("-security").is_some_and(|release| RELEASES.contains(&release)));
        Some(Self { security: security.unwrap_or_else(|| format!("{main}-security")), main })
    }
}

/// The files that name sources, with their texts. What cannot be read names none.
fn configuration(dir: &Path) -> Vec<(String, String)> {
    let parts = fs::read_dir(dir.join("sources.list.d")).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<_> = parts.chain([dir.join("sources.list")]).collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| Some((path.to_string_lossy().into_owned(), fs::read_to_string(path).ok()?));
    paths.iter().filter_map(read).collect()
}

/// `deb [options] address suite component…` (sources.list(5)).
fn lines(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    for line in text.lines().map(|line| line.split('#').next().unwrap_or_default()) {
        let Some(rest) = line.trim().strip_prefix("deb ").map(str::trim) else { continue };
        let rest = match rest.strip_prefix('[').and_then(|options| options.split_once(']')) {
            Some((_, rest)) => rest,
            None => rest,
        };
        let mut words = rest.split_whitespace().map(str::to_owned);
        if let (Some(address), Some(suite)) = (words.next(), words.next()) {
            sources.push(Source { address, suites: vec![suite], components: words.collect() });
        }
    }
    sources
}

/// `URIs: …`, `Suites: …`, `Components: …`, in paragraphs (sources.list(5), "deb822-style format").
fn paragraphs(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    for paragraph in text.split("\n\n") {
        let field = |name: &str| {
            let mut values = paragraph.lines().filter_map(|line| line.split_once(':'));
            let found = values.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value);
            found.unwrap_or_default().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let (suites, components) = (field("Suites"), field("Components"));
        let is_binary = field("Types").iter().any(|kind| kind == "deb");
        let is_enabled = !field("Enabled").iter().any(|value| value == "no");
        if is_binary && is_enabled {
            let of = |address| Source { address, suites: suites.clone(), components: components.clone() };
            sources.extend(field("URIs").into_iter().map(of));
        }
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAGRAPHS: &str = "Types: deb\n# a remark: with a colon\nURIs: http://mirror.test/debian/\n\
        Suites: bookworm bookworm-updates\nComponents: main\nSigned-By: /k.gpg\n\n\
        Types: deb\nURIs: http://safe.test/debian-security\nSuites: bookworm-security\nComponents: main\n";

    #[test]
    fn both_formats_of_the_configuration_are_read() {
        let expected =
            Mirror { main: "http://mirror.test/debian".into(), security: "http://safe.test/debian-security".into() };
        assert_eq!(Mirror::among(&paragraphs(PARAGRAPHS)), Some(expected.clone()));
        let one_line = "# deb http://old.test/debian bookworm main\n\
            deb [arch=amd64 signed-by=/k.gpg] http://mirror.test/debian bookworm main contrib # ours\n\
            deb-src http://source.test/debian bookworm main\n\
            deb http://safe.test/debian-security bookworm-security main\n";
        assert_eq!(Mirror::among(&lines(one_line)), Some(expected));
    }

    #[test]
    fn other_peoples_packages_are_no_mirror_of_debian() {
        let text = "deb https://tools.test/apt cloud-sdk-bookworm main\ndeb https://ship.test/linux bookworm stable\n";
        assert_eq!(Mirror::among(&lines(text)), None);
    }

    #[test]
    fn without_an_address_for_security_it_is_taken_to_lie_beside_the_main_one() {
        let mirror = Mirror::among(&lines("deb http://mirror.test/debian trixie main\n"));
        assert_eq!(mirror.map(|mirror| mirror.security).as_deref(), Some("http://mirror.test/debian-security"));
    }

    #[test]
    fn a_source_that_is_switched_off_is_none() {
        assert_eq!(paragraphs("Types: deb\nEnabled: no\nURIs: http://x.test\nSuites: sid\nComponents: main\n"), []);
    }
}
