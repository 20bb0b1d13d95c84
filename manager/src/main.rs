//! The manager's program.

fn main() {}
