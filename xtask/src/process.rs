//! Starting other programs, and saying which.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// The cargo that runs this program, in the workspace's folder.
pub fn cargo<I: AsRef<OsStr>>(arguments: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(workspace::root());
    command
}

/// Any other program, in the workspace's folder.
pub fn program<I: AsRef<OsStr>>(name: impl AsRef<OsStr>, arguments: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(name);
    command.args(arguments).current_dir(workspace::root());
    command
}

/// The command as a person would type it.
pub fn line(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Shows the command, runs it with this program's own output, and fails where it fails.
pub fn run(command: &mut Command) -> Result<()> {
    let line = line(command);
    println!("+ {line}");
    let status = command.status().with_context(|| format!("`{line}` cannot be started"))?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(())
}

/// Runs the command quietly and gives its standard output; fails, with what it said, where it fails.
pub fn output(command: &mut Command) -> Result<String> {
    let line = line(command);
    let output = command.output().with_context(|| format!("`{line}` cannot be started"))?;
    if !output.status.success() {
        bail!("`{line}` failed: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("the output of `{line}` is no UTF-8"))
}

/// The program's file, looked for in `PATH` and in the folders of the system's administration, which a user's `PATH` may lack.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let administration = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path).chain(administration).map(|dir| dir.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_without_its_folder() {
        assert_eq!(line(&program("/usr/bin/env", ["-i", "true"])), "env -i true");
    }

    #[test]
    fn a_command_that_fails_is_named() {
        let error = run(&mut program("false", [""; 0])).map_err(|error| error.to_string());
        assert_eq!(error, Err("`false` failed: exit status: 1".to_owned()));
    }

    #[test]
    fn what_a_failing_command_said_is_kept() {
        let error = output(&mut program("sh", ["-c", "echo why >&2; exit 3"])).map_err(|error| error.to_string());
        assert_eq!(error, Err("`sh -c echo why >&2; exit 3` failed: exit status: 3\nwhy".to_owned()));
    }

    #[test]
    fn a_program_that_is_not_there_is_not_found() {
        assert!(find("sh").is_some());
        assert_eq!(find("slabmon-no-such-program"), None);
    }
}
