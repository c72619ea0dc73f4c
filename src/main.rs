//! The binary: hands the world over to the library's command line and exits with what it returns.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let env = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect();
    ExitCode::from(batchgate::cli::run(std::env::args_os(), env, &mut std::io::stdout()))
}
