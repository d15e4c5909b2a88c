//! The rules. Each says in its message what to do instead.

use regex::Regex;

use super::{
    Finding,
    tokens::{Token, lines_of, std_modules},
};

/// A file longer than this holds more than one noun.
const MOST_LINES: usize = 800;

/// Rules on any text.
pub fn check_text(path: &str, text: &str) -> Vec<Finding> {
    home_folders(path, text)
}

/// Rules on Rust.
pub fn check_rust(path: &str, text: &str, tokens: &[Token]) -> Vec<Finding> {
    let mut findings = too_long(path, text);
    findings.extend(unfinished(path, tokens));
    findings.extend(unsafe_code(path, tokens));
    if path.starts_with("slabmon/src/") {
        findings.extend(aya_and_axum(path, tokens));
        findings.extend(serialised_types(path, tokens));
    }
    if is_module(path, "model") || is_module(path, "plan") {
        findings.extend(impure(path, tokens));
    }
    findings
}

/// Whether `path` is the module `name` of slabmon or lies in it.
fn is_module(path: &str, name: &str) -> bool {
    path.strip_prefix("slabmon/src/")
        .and_then(|rest| rest.strip_prefix(name))
        .is_some_and(|rest| rest.starts_with(['.', '/']))
}

fn finding(path: &str, line: usize, message: impl Into<String>) -> Finding {
    Finding { path: path.to_owned(), line, message: message.into() }
}

/// A path into somebody's home folder: it is no other reader's.
fn home_folders(path: &str, text: &str) -> Vec<Finding> {
    let Ok(pattern) = Regex::new(r"(?:^|[^\w./-])(/(?:home|Users)/[a-z_]|/roo[t]/)") else {
        return vec![finding(path, 1, "the pattern of home folders is broken")];
    };
    let lines = text.lines().zip(1..).filter(|(line, _)| pattern.is_match(line));
    lines.map(|(_, number)| finding(path, number, "names a home folder; use a relative path, $HOME or ~")).collect()
}

fn too_long(path: &str, text: &str) -> Vec<Finding> {
    let lines = text.lines().count();
    if lines < MOST_LINES {
        return Vec::new();
    }
    vec![finding(path, lines, format!("has {lines} lines, {MOST_LINES} or more; split it by what it is about"))]
}

fn unfinished(path: &str, tokens: &[Token]) -> Vec<Finding> {
    let marks: [(&[&str], &str); 3] = [
        (&["todo", "!"], "is not written yet; write it"),
        (&["unimplemented", "!"], "is not written yet; write it"),
        (&["#", "[", "ignore"], "is a test that does not run; make it run or take it out"),
    ];
    let found =
        marks.iter().flat_map(|(words, message)| lines_of(tokens, words).into_iter().map(move |line| (line, message)));
    found.map(|(line, message)| finding(path, line, *message)).collect()
}

/// `unsafe` stands where the kernel's memory is read, and where a test load needs a call that no crate wraps.
fn unsafe_code(path: &str, tokens: &[Token]) -> Vec<Finding> {
    let allowed =
        is_module(path, "probe") || path.starts_with("slabmon-ebpf/src/") || path == "slabmon-load/src/messages.rs";
    if allowed {
        return Vec::new();
    }
    let lines = lines_of(tokens, &["unsafe"]).into_iter();
    lines.map(|line| finding(path, line, "is unsafe; only probe and the eBPF programs may be")).collect()
}

/// One module knows aya, and one knows axum.
fn aya_and_axum(path: &str, tokens: &[Token]) -> Vec<Finding> {
    let owners = [("aya", "probe"), ("axum", "http")];
    let foreign = owners.iter().filter(|(_, module)| !is_module(path, module));
    foreign
        .flat_map(|(krate, module)| {
            // A word followed by `::` or the end of a `use`, so that a name like `features.axum` is none.
            let paths = lines_of(tokens, &[krate, ":", ":"]).into_iter().chain(lines_of(tokens, &["use", krate, ";"]));
            paths.map(move |line| finding(path, line, format!("uses {krate}; only {module} may")))
        })
        .collect()
}

/// What goes over the wire or comes from a file is written down in a type of its own.
fn serialised_types(path: &str, tokens: &[Token]) -> Vec<Finding> {
    if path == "slabmon/src/http/dto.rs"
        || path.starts_with("slabmon/src/http/dto/")
        || is_module(path, "config")
        || is_module(path, "report")
    {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        if token.text != "derive" {
            continue;
        }
        let list = tokens.get(index + 1..).unwrap_or_default().iter().take_while(|token| token.text != ")");
        findings.extend(list.filter(|token| token.text == "Serialize" || token.text == "Deserialize").map(|token| {
            finding(path, token.line, format!("derives {}; only http/dto, config and report may", token.text))
        }));
    }
    findings
}

/// The model is arithmetic: what it works on is handed to it.
fn impure(path: &str, tokens: &[Token]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (module, line) in std_modules(tokens) {
        if ["fs", "net", "process", "thread", "env"].contains(&module.as_str()) {
            findings.push(finding(path, line, format!("uses std::{module}; model and plan do no I/O")));
        }
    }
    for clock in ["Instant", "SystemTime"] {
        let lines = lines_of(tokens, &[clock]).into_iter();
        findings.extend(lines.map(|line| finding(path, line, format!("uses {clock}; model and plan have no clock"))));
    }
    findings
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{super::tokens, *};

    /// Checks a sample as if it were the file `path`.
    fn findings(path: &str, source: &str) -> Vec<String> {
        let found = check_rust(path, source, &tokens::read(source).unwrap());
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_home_folder_is_found_and_a_like_name_is_not() {
        // Put together here, so that this file itself passes.
        for sample in ["see /home/NAME/x", "(\"/NAME/.cargo\")", "/Users/NAME/x"] {
            let sample = sample.replace("NAME", "root");
            assert_eq!(check_text("a.md", &sample).len(), 1, "{sample}");
        }
        for sample in ["~/.cargo/bin", "$HOME/x", "example.org/home/page", "target/root/x", "ProtectHome=yes"] {
            assert!(check_text("a.md", sample).is_empty(), "{sample}");
        }
    }

    #[test]
    fn the_line_of_a_finding_is_told() {
        let sample = "first\nsecond /NAME/x\nthird".replace("NAME", "root");
        let found = check_text("a.md", &sample);
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_file_of_800_lines_is_too_long() {
        assert!(findings("a/src/x.rs", &"\n".repeat(799)).is_empty());
        let found = findings("a/src/x.rs", &"\n".repeat(800));
        assert_eq!(found, ["a/src/x.rs:800: has 800 lines, 800 or more; split it by what it is about"]);
    }

    #[test]
    fn what_is_not_written_yet_is_found() {
        assert_eq!(findings("a/src/x.rs", "fn f() {\n todo!()\n}").len(), 1);
        assert_eq!(findings("a/src/x.rs", "fn f() { unimplemented!() }").len(), 1);
        assert!(findings("a/src/x.rs", "// todo!()\nfn todo() {}").is_empty());
    }

    #[test]
    fn a_test_that_does_not_run_is_found() {
        assert_eq!(
            findings("a/src/x.rs", "#[test]\n#[ignore]\nfn f() {}"),
            ["a/src/x.rs:2: is a test that does not run; make it run or take it out"]
        );
        assert_eq!(findings("a/src/x.rs", "#[ignore = \"slow\"]\nfn f() {}").len(), 1);
        assert!(findings("a/src/x.rs", "fn f(ignore: bool) {}").is_empty());
    }

    #[test]
    fn unsafe_code_is_found_outside_probe() {
        let sample = "fn f() { unsafe { g() } }";
        for path in ["slabmon/src/host/btf.rs", "slabmon/src/probed.rs", "slabmon-load/src/held.rs", "xtask/src/x.rs"] {
            assert_eq!(findings(path, sample).len(), 1, "{path}");
        }
        for path in ["slabmon/src/probe/map.rs", "slabmon/src/probe.rs", "slabmon-ebpf/src/kmem.rs"] {
            assert!(findings(path, sample).is_empty(), "{path}");
        }
        assert!(findings("a/src/x.rs", "#![deny(unsafe_code)]").is_empty());
    }

    #[test]
    fn aya_is_found_outside_probe_and_axum_outside_http() {
        assert_eq!(
            findings("slabmon/src/app.rs", "use aya::Ebpf;"),
            ["slabmon/src/app.rs:1: uses aya; only probe may"]
        );
        assert_eq!(findings("slabmon/src/app.rs", "fn f(x: aya::Btf) {}").len(), 1);
        assert_eq!(findings("slabmon/src/app.rs", "use axum;").len(), 1);
        assert_eq!(findings("slabmon/src/probe/load.rs", "use axum::Router;").len(), 1);
        assert!(findings("slabmon/src/probe/load.rs", "use aya::Ebpf;").is_empty());
        assert!(findings("slabmon/src/http/mod.rs", "use axum::Router;").is_empty());
        assert!(findings("slabmon/src/app.rs", "let aya = 1;").is_empty());
    }

    #[test]
    fn a_serialised_type_is_found_outside_dto_and_config() {
        let sample = "#[derive(Debug, Serialize)]\nstruct S;\n#[derive(serde::Deserialize)]\nstruct T;";
        assert_eq!(
            findings("slabmon/src/model/sample.rs", sample),
            [
                "slabmon/src/model/sample.rs:1: derives Serialize; only http/dto, config and report may",
                "slabmon/src/model/sample.rs:3: derives Deserialize; only http/dto, config and report may",
            ]
        );
        assert_eq!(findings("slabmon/src/http/mod.rs", sample).len(), 2);
        for path in ["slabmon/src/http/dto.rs", "slabmon/src/config.rs", "slabmon/src/report/json.rs"] {
            assert!(findings(path, sample).is_empty(), "{path}");
        }
    }

    #[test]
    fn files_sockets_and_clocks_are_found_in_the_model() {
        for sample in
            ["use std::fs;", "use std::{io, net::IpAddr};", "use std::time::Instant;", "fn f(t: SystemTime) {}"]
        {
            assert_eq!(findings("slabmon/src/model/x.rs", sample).len(), 1, "{sample}");
            assert_eq!(findings("slabmon/src/plan.rs", sample).len(), 1, "{sample}");
            assert!(findings("slabmon/src/host/x.rs", sample).is_empty(), "{sample}");
        }
        assert!(findings("slabmon/src/model/x.rs", "use std::{collections::BTreeMap, time::Duration};").is_empty());
    }
}
