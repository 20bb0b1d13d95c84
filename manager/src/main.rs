//! The manager's program.

use std::io::Write;
use std::process::ExitCode;

use kruise_manager::args::{Request, parse};

fn main() -> ExitCode {
    match parse(std::env::args_os(), |name| std::env::var(name).ok()) {
        Ok(Request::Run(config)) => kruise_manager::run::run(*config),
        Ok(Request::Print(text)) => match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) => error.exit(),
    }
}
