#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use clap::CommandFactory;
use proptest::prelude::*;

use super::*;
use crate::cli::parse_from;

/// Loads with a file of that text (shown as `F` in messages), those variables and those options.
fn load_from(file: &str, variables: &[(&str, &str)], options: &[&str]) -> Result<Config, (String, u8)> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("slabmon.toml");
    std::fs::write(&path, file).unwrap();
    let cli = parse_from(["slabmon"].iter().chain(options)).unwrap();
    let environment = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    load_with_default_file(&cli, environment, &path)
        .map_err(|error| (error.to_string().replace(path.to_str().unwrap(), "F"), error.exit_code()))
}

fn refusal(file: &str, variables: &[(&str, &str)], options: &[&str]) -> (String, u8) {
    match load_from(file, variables, options) {
        Ok(config) => panic!("was accepted: {file:?} {variables:?} {options:?}\n{}", config.to_toml()),
        Err(refusal) => refusal,
    }
}

#[test]
fn without_file_variables_and_options_the_defaults_hold() {
    let cli = parse_from(["slabmon"]).unwrap();
    let config = load_with_default_file(&cli, [], Path::new("/nonexistent/slabmon.toml")).unwrap();
    assert_eq!(
        config.to_toml(),
        "[web]\n\
         listen_address = [\"127.0.0.1:9853\"] # default\n\
         telemetry_path = \"/metrics\" # default\n\
         \n\
         [poll]\n\
         counters_interval = \"1s\" # default\n\
         slabinfo_interval = \"10s\" # default\n\
         \n\
         [trace]\n\
         enabled = true # default\n\
         slots_per_cpu = 1024 # default\n\
         btf = \"\" # default\n\
         \n\
         [metrics]\n\
         max_series = 2750 # default\n\
         cache_include = [] # default\n\
         cache_exclude = [] # default\n\
         \n\
         [path]\n\
         root = \"/\" # default\n\
         \n\
         [log]\n\
         level = \"info\" # default\n\
         format = \"text\" # default\n\
         \n\
         [capabilities]\n\
         keep = false # default\n"
    );
}

#[test]
fn a_wrong_file_is_refused_with_line_and_remedy() {
    let cases = [
        (
            "[poll]\n\nslabinfo_intervl = \"1s\"",
            "F:3: unknown key `poll.slabinfo_intervl`, did you mean `slabinfo_interval`?",
        ),
        ("[poll]\nmax_series = 1", "F:2: unknown key `poll.max_series`, did you mean `metrics.max_series`?"),
        ("[log]\nxyzzy = 1", "F:2: unknown key `log.xyzzy`, [log] has level, format"),
        ("\n[pol]\na = 1", "F:2: unknown key `pol`, did you mean `poll`?"),
        (
            "[unheard]\na = 1",
            "F:1: unknown key `unheard`, the tables are web, poll, trace, metrics, path, log, capabilities",
        ),
        ("listen_addres = []", "F:1: unknown key `listen_addres`, did you mean `web.listen_address`?"),
        ("web = 3", "F:1: unknown key `web`, which is a table; write [web] above its keys"),
        ("[web.tls]\ncert = 1", "F:1: unknown key `web.tls`, [web] has listen_address, telemetry_path"),
        // The first mistake is told, whatever the order of the tables' names.
        (
            "[web]\nbad_one = 1\n[log]\nbad_two = 1",
            "F:2: unknown key `web.bad_one`, [web] has listen_address, telemetry_path",
        ),
        (
            "[poll]\ncounters_interval = 1",
            "F:2: `poll.counters_interval`: a number is not allowed here; write a duration in quotes, 100ms to 1m, such as \"1s\"",
        ),
        (
            "[poll]\ncounters_interval = \"1\"",
            "F:2: `poll.counters_interval`: `1` is no duration; write number and unit, 100ms to 1m, such as 1s",
        ),
        (
            "[poll]\ncounters_interval = \"99ms\"",
            "F:2: `poll.counters_interval`: 99ms is out of bounds; write 100ms to 1m",
        ),
        ("[poll]\nslabinfo_interval = \"2h\"", "F:2: `poll.slabinfo_interval`: 2h is out of bounds; write 1s to 1h"),
        ("[trace]\nslots_per_cpu = 1000", "F:2: `trace.slots_per_cpu`: 1000 is no power of two; write 512 or 1024"),
        (
            "[trace]\nslots_per_cpu = 32",
            "F:2: `trace.slots_per_cpu`: 32 is out of bounds; write a number from 64 to 65536",
        ),
        (
            "[trace]\nslots_per_cpu = 1e3",
            "F:2: `trace.slots_per_cpu`: a number with a point is not allowed here; write a number from 64 to 65536",
        ),
        (
            "[trace]\nbtf = 1",
            "F:2: `trace.btf`: a number is not allowed here; write a path in quotes, or \"\" for the kernel's own",
        ),
        ("[trace]\nenabled = \"yes\"", "F:2: `trace.enabled`: text is not allowed here; write true or false"),
        (
            "[metrics]\nmax_series = -1",
            "F:2: `metrics.max_series`: -1 is out of bounds; write a number from 100 to 1000000",
        ),
        (
            "[metrics]\nmax_series = 99999999999999999999999",
            "F:2: `metrics.max_series`: 99999999999999999999999 is out of bounds; write a number from 100 to 1000000",
        ),
        (
            "[metrics]\ncache_include = \"a\"",
            "F:2: `metrics.cache_include`: text is not allowed here; write a list of patterns such as [\"^kmalloc-\"]",
        ),
        (
            "[metrics]\ncache_include = [\n  \"a\",\n  \"(\",\n]",
            "F:4: `metrics.cache_include`: `(` is not a regular expression that can be used: unclosed group; correct the pattern",
        ),
        ("[metrics]\ncache_exclude = [\"a\",\n1]", "F:3: `metrics.cache_exclude`: lists hold text in quotes only"),
        (
            "[web]\nlisten_address = []",
            "F:2: `web.listen_address`: no address at all; write at least one, such as 127.0.0.1:9853",
        ),
        (
            "[web]\nlisten_address = [\"127.0.0.1\"]",
            "F:2: `web.listen_address`: `127.0.0.1` has no port; write 127.0.0.1:9853",
        ),
        ("[web]\nlisten_address = [\"::1\"]", "F:2: `web.listen_address`: `::1` has no port; write [::1]:9853"),
        (
            "[web]\nlisten_address = [\"localhost:9853\"]",
            "F:2: `web.listen_address`: `localhost:9853` is no address and port (names are not looked up); write 127.0.0.1:9853, [::1]:9853 or :9853",
        ),
        (
            "[web]\nlisten_address = [\":70000\"]",
            "F:2: `web.listen_address`: `:70000` is no address and port (names are not looked up); write 127.0.0.1:9853, [::1]:9853 or :9853",
        ),
        ("[web]\nlisten_address = [\":1\", \":1\"]", "F:2: `web.listen_address`: `:1` is given twice; write it once"),
        (
            "[web]\ntelemetry_path = \"metrics\"",
            "F:2: `web.telemetry_path`: `metrics` does not begin with `/`; write a path such as /metrics",
        ),
        (
            "[web]\ntelemetry_path = \"/status\"",
            "F:2: `web.telemetry_path`: `/status` is taken by slabmon's API; write another path, such as /metrics",
        ),
        (
            "[web]\ntelemetry_path = \"/a{b}\"",
            "F:2: `web.telemetry_path`: `/a{b}` is not a plain path; write letters, digits, `-`, `.`, `_` and `~` between single slashes",
        ),
        ("[path]\nroot = \"host\"", "F:2: `path.root`: `host` is no absolute path; write one that begins with `/`"),
        (
            "[log]\nlevel = \"loud\"",
            "F:2: `log.level`: `loud` is not known; write one of error, warn, info, debug, trace",
        ),
        ("[log]\nformat = \"xml\"", "F:2: `log.format`: `xml` is not known; write one of text, logfmt, json"),
        ("[log]\nformat = 2020-01-01", "F:2: `log.format`: a date is not allowed here; write a word such as \"text\""),
        (
            "[log]\nlevel = \"in\\u001bfo\"",
            "F:2: `log.level`: `in\\u{1b}fo` is not known; write one of error, warn, info, debug, trace",
        ),
    ];
    for (file, message) in cases {
        assert_eq!(refusal(file, &[], &[]), (message.to_owned(), 78), "{file:?}");
    }
}

#[test]
fn a_file_that_is_no_toml_is_refused_with_its_line() {
    for (file, start) in [
        ("[web]\n\nlisten_address = [", "F:3: not valid TOML: "),
        ("[log]\nlevel = \"info\"\nlevel = \"warn\"\n", "F:3: not valid TOML: "),
        ("\n\n= 1", "F:3: not valid TOML: "),
    ] {
        let (message, code) = refusal(file, &[], &[]);
        assert!(message.starts_with(start) && !message.contains('\n'), "{message}");
        assert_eq!(code, 78);
    }
}

#[test]
fn a_file_that_is_not_text_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.toml");
    let option = format!("--config.file={}", path.display());
    let cli = parse_from(["slabmon", &option]).unwrap();
    let message = || load(&cli, []).unwrap_err().to_string().replace(path.to_str().unwrap(), "F");

    std::fs::write(&path, b"[log]\nlevel = \"\xff\"").unwrap();
    assert_eq!(message(), "F:2: not valid TOML: not UTF-8");
    std::fs::write(&path, vec![b'#'; 2 << 20]).unwrap();
    assert_eq!(
        message(),
        "F: longer than 1048576 bytes, which no configuration is; name another file with --config.file or SLABMON_CONFIG_FILE"
    );
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(message().starts_with("F: cannot be read: "), "{}", message());
}

#[test]
fn a_named_file_must_exist() {
    for (options, variables) in [
        (vec!["slabmon", "--config.file=/nonexistent/a.toml"], vec![]),
        (vec!["slabmon"], vec![("SLABMON_CONFIG_FILE".into(), "/nonexistent/a.toml".into())]),
    ] {
        let error = load(&parse_from(options).unwrap(), variables).unwrap_err();
        assert!(error.to_string().starts_with("/nonexistent/a.toml: cannot be read: No such file"), "{error}");
        assert_eq!(error.exit_code(), 78);
    }
}

#[test]
fn wrong_variables_and_options_are_refused_by_their_names() {
    type Case = (&'static [(&'static str, &'static str)], &'static [&'static str], &'static str, u8);
    let cases: [Case; 9] = [
        (
            &[("SLABMON_POLL_COUNTER_INTERVAL", "1s")],
            &[],
            "SLABMON_POLL_COUNTER_INTERVAL: unknown variable, did you mean `SLABMON_POLL_COUNTERS_INTERVAL`?",
            78,
        ),
        (&[("SLABMON_Q", "1s")], &[], "SLABMON_Q: unknown variable, `slabmon --help` lists them all", 78),
        (&[("SLABMON_TRACE", "maybe")], &[], "SLABMON_TRACE: `maybe` is neither true nor false; write one of them", 78),
        (
            &[("SLABMON_METRICS_MAX_SERIES", "many")],
            &[],
            "SLABMON_METRICS_MAX_SERIES: `many` is no whole number; write one from 100 to 1000000",
            78,
        ),
        (
            &[("SLABMON_WEB_LISTEN_ADDRESS", ":1,:1")],
            &[],
            "SLABMON_WEB_LISTEN_ADDRESS: `:1` is given twice; write it once",
            78,
        ),
        (&[], &["--trace=maybe"], "--trace: `maybe` is neither true nor false; write one of them", 64),
        (&[], &["--poll.slabinfo-interval=1ms"], "--poll.slabinfo-interval: 1ms is out of bounds; write 1s to 1h", 64),
        (
            &[],
            &["--trace.slots-per-cpu=65537"],
            "--trace.slots-per-cpu: 65537 is out of bounds; write a number from 64 to 65536",
            64,
        ),
        (
            &[],
            &["--metrics.cache-exclude=["],
            "--metrics.cache-exclude: `[` is not a regular expression that can be used: unclosed character class; correct the pattern",
            64,
        ),
    ];
    for (variables, options, message, code) in cases {
        assert_eq!(refusal("", variables, options), (message.to_owned(), code));
    }
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_text_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let value = OsString::from_vec(vec![0xff]);
    let cli = parse_from(["slabmon"]).unwrap();
    let error = load(&cli, [("SLABMON_LOG_LEVEL".into(), value)]).unwrap_err();
    assert_eq!(error.to_string(), "SLABMON_LOG_LEVEL: not UTF-8; write plain text");
}

#[test]
fn variables_of_the_build_and_of_kubernetes_are_not_ours() {
    let variables = [
        ("SLABMON_REVISION", "abc"),
        ("SLABMON_SERVICE_HOST", "10.0.0.1"),
        ("SLABMON_SERVICE_PORT_METRICS", "9853"),
        ("SLABMON_PORT", "tcp://10.0.0.1:9853"),
        ("SLABMON_PORT_9853_TCP_ADDR", "10.0.0.1"),
        ("SLABMON_WEB_PORT_9853_TCP", "tcp://10.0.0.1:9853"),
        ("SLABMONITOR", "other"),
    ];
    assert!(load_from("", &variables, &[]).is_ok());
}

#[test]
fn each_source_goes_over_the_one_before() {
    let file = "[log]\nlevel = \"warn\"\nformat = \"json\"\n[poll]\ncounters_interval = \"2s\"\n";
    let variables = [("SLABMON_LOG_LEVEL", "debug"), ("SLABMON_LOG_FORMAT", "logfmt"), ("SLABMON_PATH_ROOT", "")];
    let config = load_from(file, &variables, &["--log.level=trace"]).unwrap();
    assert_eq!(config.log_level(), LogLevel::Trace);
    assert_eq!(config.log_format(), LogFormat::Logfmt);
    assert_eq!(config.counters_interval(), Duration::from_secs(2));
    assert_eq!(config.root(), Path::new("/"));
    let toml = config.to_toml();
    for line in [
        "level = \"trace\" # --log.level\n",
        "format = \"logfmt\" # SLABMON_LOG_FORMAT\n",
        "slabmon.toml:5\n",
        "root = \"/\" # default\n",
    ] {
        assert!(toml.contains(line), "{line:?} in\n{toml}");
    }
}

#[test]
fn the_file_that_the_option_names_goes_before_the_one_of_the_variable() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (directory.path().join("a.toml"), directory.path().join("b.toml"));
    std::fs::write(&a, "[log]\nlevel = \"warn\"").unwrap();
    std::fs::write(&b, "[log]\nlevel = \"error\"").unwrap();
    let variables = || [(OsString::from("SLABMON_CONFIG_FILE"), b.clone().into_os_string())];
    let named = parse_from(["slabmon", "--config.file", a.to_str().unwrap()]).unwrap();
    assert_eq!(load(&named, variables()).unwrap().log_level(), LogLevel::Warn);
    let unnamed = parse_from(["slabmon"]).unwrap();
    assert_eq!(load(&unnamed, variables()).unwrap().log_level(), LogLevel::Error);
}

#[test]
fn every_setting_can_be_set_from_each_source_and_prints_to_what_loads_the_same() {
    let values = [
        ("[\"0.0.0.0:1\", \"[::1]:2\", \":0\"]", "0.0.0.0:1, [::1]:2,:0", "0.0.0.0:1"),
        ("\"/a/b-c.d_~\"", "/a/b-c.d_~", "/a/b-c.d_~"),
        ("\"1m\"", "60s", "60s"),
        ("\"1h\"", "60m", "60m"),
        ("false", "false", "false"),
        ("0x40", "64", "64"),
        ("\"/boot/types.btf\"", "types.btf", "./types.btf"),
        ("1_000_000", "1000000", "1000000"),
        ("['^a\\d', \"b\\\"\\u001b\\n\"]", "^a\\d", "^a\\d"),
        ("[\"\"]", "é", "é"),
        ("\"/host\"", "/host", "/host"),
        ("\"error\"", "error", "error"),
        ("\"logfmt\"", "logfmt", "logfmt"),
        ("true", "true", "true"),
    ];
    let defaults = load_from("", &[], &[]).unwrap().to_toml();
    for (setting, (in_file, in_variable, in_option)) in SETTINGS.iter().zip(values) {
        let file = format!("[{}]\n{} = {in_file}\n", setting.section, setting.name);
        let option = format!("{}={in_option}", setting.option);
        for config in [
            load_from(&file, &[], &[]),
            load_from("", &[(setting.variable, in_variable)], &[]),
            load_from("", &[], &[&option]),
        ] {
            let printed = config.unwrap().to_toml();
            assert_ne!(printed, defaults, "{} took no effect", setting.name);
            let again = load_from(&printed, &[], &[]).unwrap().to_toml();
            assert_eq!(without_comments(&again), without_comments(&printed));
        }
    }
}

/// The values alone. No value in these tests holds ` # `.
fn without_comments(toml: &str) -> Vec<&str> {
    toml.lines().map(|line| line.split(" # ").next().unwrap_or_default()).collect()
}

#[test]
fn the_help_names_every_setting_with_its_variable_and_default() {
    let defaults: toml::Table = load_from("", &[], &[]).unwrap().to_toml().parse().unwrap();
    let command = Cli::command();
    for setting in &SETTINGS {
        let argument = command
            .get_arguments()
            .find(|argument| argument.get_long() == Some(&setting.option[2..]))
            .unwrap_or_else(|| panic!("no option {}", setting.option));
        let help = argument.get_help().unwrap().to_string();
        assert!(help.contains(&format!("[env: {}]", setting.variable)), "{help}");
        let default = match &defaults[setting.section][setting.name] {
            toml::Value::Array(values) if values.is_empty() => {
                if setting.key == Key::CacheInclude {
                    "all".to_owned()
                } else {
                    "none".to_owned()
                }
            }
            toml::Value::Array(values) => values[0].as_str().unwrap().to_owned(),
            toml::Value::String(value) if value.is_empty() => "the kernel's own".to_owned(),
            toml::Value::String(value) => value.clone(),
            value => value.to_string(),
        };
        assert!(help.contains(&format!("[default: {default}]")), "{help}");
    }
}

proptest! {
    #[test]
    fn no_file_text_panics(text in "([a-z_.\\[\\]= \"'\\\\\n0-9]|\\PC){0,200}") {
        let mut config = Config::defaults();
        let _ = apply_file(&mut config, Path::new("F"), &text);
    }

    #[test]
    fn no_value_panics(index in 0..SETTINGS.len(), value in "\\PC{0,40}") {
        let mut config = Config::defaults();
        let setting = &SETTINGS[index];
        let _ = config.apply(setting, &Given::Words(vec![value]), Origin::Variable(setting.variable));
        prop_assert!(config.slots_per_cpu().is_power_of_two());
        prop_assert!(!config.listen_addresses().is_empty());
    }
}
