//! The `slabmon` binary: parses the command line and hands over.

use std::process::ExitCode;

use slabmon::{app, cli};

fn main() -> ExitCode {
    match cli::parse_from(std::env::args_os()) {
        Ok(cli) => ExitCode::from(app::run(&cli)),
        Err(error) => {
            // Fails only if the terminal is gone, and then nobody is there to be told.
            let _ = error.print();
            ExitCode::from(cli::exit_code_of(&error))
        }
    }
}
