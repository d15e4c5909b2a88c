//! Links in Markdown that lead to another file of the repository, or to a heading of the same file, must lead there.

use std::{collections::BTreeSet, path::Path};

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use super::Finding;

/// Checks the links of the file `path`; `paths` are all files of the repository.
pub fn check(path: &str, text: &str, paths: &BTreeSet<String>) -> Vec<Finding> {
    let headings = headings(text);
    let mut findings = Vec::new();
    for (event, range) in Parser::new(text).into_offset_iter() {
        let (Event::Start(Tag::Link { dest_url, .. }) | Event::Start(Tag::Image { dest_url, .. })) = event else {
            continue;
        };
        let line = 1 + text.get(..range.start).unwrap_or_default().matches('\n').count();
        let problem = match dest_url.split_once('#') {
            _ if is_elsewhere(&dest_url) => None,
            Some(("", heading)) if !headings.contains(heading) => Some("no heading of this file"),
            Some(("", _)) => None,
            Some((target, _)) if !leads_somewhere(path, target, paths) => Some("no file of the repository"),
            None if !leads_somewhere(path, &dest_url, paths) => Some("no file of the repository"),
            _ => None,
        };
        if let Some(problem) = problem {
            findings.push(Finding {
                path: path.to_owned(),
                line,
                message: format!("links to {dest_url}, which is {problem}"),
            });
        }
    }
    findings
}

fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// Whether `target`, seen from the file `from`, is a file or a folder of the repository.
fn leads_somewhere(from: &str, target: &str, paths: &BTreeSet<String>) -> bool {
    let mut parts: Vec<&str> = Path::new(from).parent().and_then(Path::to_str).unwrap_or_default().split('/').collect();
    parts.retain(|part| !part.is_empty());
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_none() => return false,
            ".." => {}
            part => parts.push(part),
        }
    }
    let wanted = parts.join("/");
    wanted.is_empty() || paths.contains(&wanted) || paths.iter().any(|path| path.starts_with(&format!("{wanted}/")))
}

/// The anchors of the file's headings: in lower case, spaces as hyphens, without other signs.
fn headings(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut heading: Option<String> = None;
    for event in Parser::new(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(part) | Event::Code(part) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&part);
                }
            }
            Event::End(TagEnd::Heading(_)) => anchors.extend(heading.take().map(|text| anchor(&text))),
            _ => {}
        }
    }
    anchors
}

fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    kept.chars()
        .filter(|sign| sign.is_alphanumeric() || " -_".contains(*sign))
        .map(|sign| if sign == ' ' { '-' } else { sign })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        let paths = ["README.md", "docs/metrics.md", "docs/cost/index.md"].map(str::to_owned).into();
        check("docs/metrics.md", text, &paths).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_link_to_a_file_that_is_not_there_is_found_with_its_line() {
        let found = findings("Text.\n\nSee [this](absent.md) and [that](../src/x.rs#L1).\n");
        assert_eq!(
            found,
            [
                "docs/metrics.md:3: links to absent.md, which is no file of the repository",
                "docs/metrics.md:3: links to ../src/x.rs#L1, which is no file of the repository",
            ]
        );
    }

    #[test]
    fn a_link_out_of_the_repository_is_found() {
        assert_eq!(findings("[x](../../README.md)").len(), 1);
    }

    #[test]
    fn links_to_files_folders_and_other_sites_are_fine() {
        assert_eq!(findings("[a](../README.md) [b](cost) [c](./cost/index.md#x) [d](https://example.org/x)"), [""; 0]);
    }

    #[test]
    fn a_link_in_code_is_no_link() {
        assert_eq!(findings("`[a](absent.md)`\n\n```\n[a](absent.md)\n```\n"), [""; 0]);
    }

    #[test]
    fn a_heading_that_is_not_there_is_found() {
        assert_eq!(findings("# The `top` table, by size\n\n[x](#the-top-table-by-size)"), [""; 0]);
        assert_eq!(
            findings("# One\n\n[x](#two)"),
            ["docs/metrics.md:3: links to #two, which is no heading of this file"]
        );
    }
}
