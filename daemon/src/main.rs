//! `kruise-daemon`, the node agent of kruise-rs.

use std::io::Write as _;

use clap::Parser as _;
use kruise_daemon::args::Args;
use kruise_daemon::{logs, run};

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if args.print_config {
        return Ok(std::io::stdout().write_all(args.print().as_bytes())?);
    }
    args.check()?;
    logs::init(args.logging_format, args.v);
    run::run(&args)
}
