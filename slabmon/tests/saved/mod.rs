//! Saved slab data: files of other machines, and what the built binary and the library say of them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use serde_json::Value;
use slabmon::{
    http,
    model::snapshot::Snapshot,
    report::{
        BUILD, Context, Format,
        sections::{ReportOptions, Section},
    },
    saved::SavedFiles,
};

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/slabinfo").join(name)
}

pub fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slabmon"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SLABMON_")) {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
pub fn printed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
pub fn refused(arguments: &[&str], code: i32, message: &str) {
    let output = run(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*output.stdout), (Some(code), &b""[..]), "{arguments:?}: {error}");
    assert!(error.contains(message), "{arguments:?}: {error}");
}

/// Saved files, by what they are a copy of.
#[derive(Default)]
pub struct Saved {
    pub files: SavedFiles,
}

impl Saved {
    pub fn slabinfo(path: impl Into<PathBuf>) -> Self {
        Self { files: SavedFiles { slabinfo: Some(path.into()), ..SavedFiles::default() } }
    }

    pub fn fixture(name: &str) -> Self {
        Self::slabinfo(fixture(name))
    }

    pub fn meminfo(mut self, path: impl Into<PathBuf>) -> Self {
        self.files.meminfo = Some(path.into());
        self
    }

    pub fn dentry_state(mut self, name: &str) -> Self {
        self.files.dentry_state = Some(fixture(name));
        self
    }

    pub fn sysfs(mut self, path: &Path) -> Self {
        self.files.sysfs = Some(path.to_owned());
        self
    }

    pub fn totals(name: &str) -> Self {
        Self { files: SavedFiles { totals: Some(fixture(name)), ..SavedFiles::default() } }
    }

    pub fn snapshot(&self) -> Snapshot {
        self.files.read().unwrap()
    }

    /// What the built binary prints; the library must render the same.
    #[track_caller]
    pub fn rendered(&self, options: &ReportOptions, format: Format) -> String {
        let files = [
            ("--slabinfo", &self.files.slabinfo),
            ("--meminfo", &self.files.meminfo),
            ("--sysfs", &self.files.sysfs),
            ("--dentry-state", &self.files.dentry_state),
            ("--totals", &self.files.totals),
        ];
        let mut arguments = vec!["report".to_owned(), format!("--format={}", format.as_str())];
        for (option, path) in files {
            arguments.extend(path.iter().map(|path| format!("{option}={}", path.display())));
        }
        arguments.extend(options.sections.iter().map(|section| format!("--section={}", section.as_str())));
        let more = [
            ("--limit", options.limit.map(|value| value.to_string())),
            ("--debug-bytes-per-object", options.debug_bytes_per_object.map(|value| value.to_string())),
            ("--price-per-gib", options.price_per_gib.map(|value| value.to_string())),
            ("--cache", options.cache.clone()),
            ("--size", options.wish.size_bytes.map(|value| value.to_string())),
            ("--order", options.wish.order.map(|value| value.to_string())),
        ];
        for (option, value) in more {
            arguments.extend(value.map(|value| format!("{option}={value}")));
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let context = Context { build: BUILD, age: Duration::ZERO };
        let by_library = http::render_report(&self.snapshot(), options, format, &context).unwrap();
        let by_binary = printed(&arguments);
        assert_eq!(by_binary, by_library);
        by_binary
    }

    #[track_caller]
    pub fn json(&self, options: &ReportOptions) -> Value {
        serde_json::from_str(&self.rendered(options, Format::Json)).unwrap()
    }

    #[track_caller]
    pub fn section(&self, section: Section) -> Value {
        self.json(&options(section))
    }

    #[track_caller]
    pub fn text(&self) -> String {
        self.rendered(&ReportOptions::default(), Format::Text)
    }

    /// `(cache, verdict)` in the order of the report; the machine is `""`.
    #[track_caller]
    pub fn verdicts(&self) -> Vec<(String, String)> {
        let report = self.section(Section::Verdict);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        report["verdicts"].as_array().unwrap().iter().map(|it| (text(&it["cache"]), text(&it["verdict"]))).collect()
    }

    #[track_caller]
    pub fn assert_verdict(&self, cache: &str, verdict: &str) -> String {
        let verdicts = self.verdicts();
        assert!(verdicts.contains(&(cache.to_owned(), verdict.to_owned())), "{verdicts:?}");
        assert!(verdicts.iter().all(|(_, verdict)| !verdict.starts_with("growing")), "no leak: {verdicts:?}");
        let report = self.section(Section::Verdict);
        let found = report["verdicts"].as_array().unwrap().iter().find(|it| it["verdict"] == verdict).unwrap();
        found["evidence"].as_str().unwrap().to_owned()
    }
}

pub fn options(section: Section) -> ReportOptions {
    ReportOptions { sections: vec![section], ..ReportOptions::default() }
}

#[track_caller]
pub fn cache<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["caches"].as_array().unwrap().iter().find(|cache| cache["name"] == name).expect(name)
}

/// A file with rows `(name, [active, objects, size, per slab, pages per slab, slabs])`.
pub fn slabinfo_file(rows: &[(&str, [u64; 6])]) -> tempfile::NamedTempFile {
    let mut text = "slabinfo - version: 2.1\n# name\n".to_owned();
    for (name, [active, objects, size, per_slab, pages, slabs]) in rows {
        text.push_str(&format!(
            "{name:<17} {active} {objects} {size} {per_slab} {pages} : tunables 0 0 0 : slabdata {slabs} {slabs} 0\n"
        ));
    }
    file_of(&text)
}

pub fn file_of(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    file
}

/// The rows that slabtop made its table from. It rounds the size of objects, so that is given where it is not the size class.
pub fn slabinfo_of_slabtop(name: &str, sizes: &[(&str, u64)]) -> tempfile::NamedTempFile {
    let text = fs::read_to_string(fixture(name)).unwrap();
    let table = text.lines().skip_while(|line| !line.trim_start().starts_with("OBJS")).skip(1);
    let rows: Vec<(&str, [u64; 6])> = table
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [objects, active, _, _, slabs, per_slab, held, cache] = words[..] else { return None };
            let number = |word: &str| word.parse::<u64>().unwrap();
            let size =
                sizes.iter().find(|(name, _)| *name == cache).map(|(_, size)| *size).or_else(|| {
                    cache.strip_prefix("kmalloc-").and_then(|class| class.rsplit('-').next()).map(number)
                })?;
            let pages = number(held.strip_suffix('K').unwrap()) / 4 / number(slabs);
            Some((cache, [number(active), number(objects), size, number(per_slab), pages, number(slabs)]))
        })
        .collect();
    assert!(rows.len() > 1, "{name}");
    slabinfo_file(&rows)
}
