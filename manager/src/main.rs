//! The manager's program.

use std::io::Write;
use std::process::ExitCode;

use kruise_manager::args::{Check, PodInfo, Request, parse};

fn look(check: Check, pod: &PodInfo) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let seen = runtime
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(kruise_manager::check::run(check, pod)));
    let (text, is_well) = seen.unwrap_or_else(|error| (format!("{error:#}\n"), false));
    let written = std::io::stdout().write_all(text.as_bytes());
    if is_well && written.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn main() -> ExitCode {
    match parse(std::env::args_os(), |name| std::env::var(name).ok()) {
        Ok(Request::Run(config)) => kruise_manager::run::run(*config),
        Ok(Request::Print(text)) => match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Ok(Request::Check(check, pod)) => look(check, &pod),
        Err(error) => error.exit(),
    }
}
