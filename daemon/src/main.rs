//! `kruise-daemon`, the node agent of kruise-rs.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use kruise_daemon::args::Args;
use kruise_daemon::{logs, run};

fn main() -> ExitCode {
    let args = Args::parse();
    if args.print_config {
        let printed = std::io::stdout().write_all(args.print().as_bytes());
        return ExitCode::from(u8::from(printed.is_err()));
    }
    if let Err(error) = args.check() {
        let _ = writeln!(std::io::stderr(), "error: {error:#}");
        return ExitCode::from(2);
    }
    logs::init(args.logging_format, args.v);
    match run::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "the agent ends");
            ExitCode::FAILURE
        }
    }
}
