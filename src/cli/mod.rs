//! The command line: arguments in, exit codes out. Human output goes to stdout, logs to stderr. Nothing here knows how a
//! request is answered.

mod aws;
mod bench;
pub mod config;
mod demo;
mod files;
mod get;
mod list;
mod probe;
mod reload;
mod serve;
mod signals;

use std::io::{self, Write};

use clap::{Parser, Subcommand};

use crate::auth::Policy;
use config::World;

/// All went well.
pub const EXIT_OK: u8 = 0;
/// Some entries failed; the rest were delivered.
pub const EXIT_PARTLY: u8 = 1;
/// Wrong usage or settings.
pub const EXIT_USAGE: u8 = 2;
/// It could not be done.
pub const EXIT_FAILED: u8 = 3;

/// An S3-compatible gateway with BatchGet: one request for thousands of objects, one ordered stream back.
#[derive(Debug, Parser)]
#[command(
    name = "batchgate",
    version,
    max_term_width = 100,
    after_help = "Start with:\n  batchgate demo\n  batchgate serve\n  batchgate serve --backend http://127.0.0.1:8333\n\nExit codes: 0 all went well, 1 some of it failed, 2 wrong usage or settings, 3 it could not be done."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::DemoArgs),
    Serve(serve::ServeArgs),
    Get(get::GetArgs),
    Bench(Box<bench::BenchArgs>),
    /// Check and show settings
    #[command(subcommand)]
    Config(config::ConfigCommand),
}

/// Runs the command that `arguments` (the program's name first) ask for and returns the exit code.
pub fn run(arguments: impl IntoIterator<Item = std::ffi::OsString>, env: Vec<(String, String)>, out: &mut dyn Write) -> u8 {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are asked for; everything else is a mistake.
            let _ = error.print();
            return if error.use_stderr() { EXIT_USAGE } else { EXIT_OK };
        }
    };
    let world = World { env, read_file: &files::read_text, check_policy: &check_policy };
    let done = match &arguments.command {
        Command::Demo(args) => demo::run(args, out),
        Command::Serve(args) => serve::run(args, &world, out),
        Command::Get(args) => get::run(args, &world, out),
        Command::Bench(args) => bench::run(args, &world, out),
        Command::Config(command) => config::run(command, &world, out),
    };
    done.unwrap_or_else(|error| match error.kind() {
        // Whoever reads the output has gone, as `head` does: there is nobody to tell. A server that ends is told of anyway.
        io::ErrorKind::BrokenPipe if !matches!(arguments.command, Command::Serve(_)) => EXIT_FAILED,
        _ => complain(&format!("{error}"), EXIT_FAILED),
    })
}

/// What is wrong with a policy document.
fn check_policy(text: &str) -> Result<(), String> {
    Policy::parse(text).map(drop).map_err(|e| e.to_string())
}

/// Says what is wrong on stderr and passes the exit code on.
fn complain(what: &str, exit: u8) -> u8 {
    let _ = writeln!(io::stderr(), "batchgate: {what}");
    exit
}
