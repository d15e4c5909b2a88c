//! One run of one emulated machine.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::architecture::Architecture;
use crate::process;

/// What is booted.
#[derive(Debug)]
pub struct Machine<'a> {
    pub architecture: Architecture,
    pub kernel: &'a Path,
    pub image: &'a Path,
    /// How long it may run.
    pub limit: Duration,
    /// Where its console is written to.
    pub log: &'a Path,
}

/// What came of it.
#[derive(Debug)]
pub struct Ran {
    /// All that was said on the console.
    pub console: String,
    /// Whether its time was up.
    pub cut: bool,
}

/// `panic=-1` ends the machine at once, because QEMU is told not to start it again. `loglevel=5` keeps the kernel's
/// notices off the console, not its warnings.
fn command_line(architecture: Architecture) -> String {
    format!("console={} panic=-1 loglevel=5 rdinit=/init", architecture.console())
}

impl Machine<'_> {
    /// Boots it, and shows each line of its console to `watch` until it ends.
    pub fn run(&self, mut watch: impl FnMut(&str)) -> Result<Ran> {
        let started = Instant::now();
        let mut log = File::create(self.log).with_context(|| format!("{}", self.log.display()))?;
        let mut emulator = Emulator::start(self)?;
        let lines = emulator.lines()?;
        let mut console = String::new();
        let cut = loop {
            match lines.recv_timeout(self.limit.saturating_sub(started.elapsed())) {
                Ok(line) => {
                    let line = String::from_utf8_lossy(&line);
                    log.write_all(line.as_bytes()).with_context(|| format!("{}", self.log.display()))?;
                    watch(line.trim_end());
                    console += &line;
                }
                Err(RecvTimeoutError::Timeout) => break true,
                Err(RecvTimeoutError::Disconnected) => break false,
            }
        };
        drop(emulator);
        Ok(Ran { console, cut })
    }
}

/// The emulator's process, which ends with this.
struct Emulator(Child);

impl Emulator {
    fn start(machine: &Machine<'_>) -> Result<Self> {
        let name = machine.architecture.emulator();
        let program = process::find(name)
            .with_context(|| format!("{name} is not installed: run `cargo xtask setup --ring 3`"))?;
        let mut command = process::program(program, ["-accel", "tcg,thread=multi", "-cpu", "max"]);
        command
            .args(["-machine", machine.architecture.machine(), "-smp", "2", "-m", "1024", "-nodefaults", "-no-reboot"])
            .args(["-display", "none", "-monitor", "none", "-serial", "stdio"])
            .arg("-kernel")
            .arg(machine.kernel)
            .arg("-initrd")
            .arg(machine.image)
            .arg("-append")
            .arg(command_line(machine.architecture))
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let line = process::line(&command);
        Ok(Self(command.spawn().with_context(|| format!("`{line}` cannot be started"))?))
    }

    /// Its console, line by line, read by a thread so that waiting for a line can end.
    fn lines(&mut self) -> Result<mpsc::Receiver<Vec<u8>>> {
        let output = self.0.stdout.take().context("the emulator has no output")?;
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let mut reader = BufReader::new(output);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    break;
                }
            }
        });
        Ok(receiver)
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
