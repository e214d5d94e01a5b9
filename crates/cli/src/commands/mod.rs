//! One file per command: its arguments, whose doc comments are the help, and one function.

/// Subcommands: the arguments of each, and the function that runs it.
macro_rules! subcommands {
    ($($(#[$about:meta])* $name:ident($args:ty) => $run:path),+ $(,)?) => {
        #[derive(clap::Subcommand)]
        pub enum Command {
            $($(#[$about])* $name(Box<$args>)),+
        }

        impl Command {
            pub fn run(&self) -> anyhow::Result<std::process::ExitCode> {
                match self {
                    $(Command::$name(args) => $run(args)),+
                }
            }
        }
    };
}

mod bench;
mod cache;
mod chat;
mod check;
mod completions;
mod config;
mod debug;
mod doctor;
mod gate;
mod init;
mod man;
mod models;
mod report;
mod run;
mod search;
mod serve;
mod trace;
mod tune;
mod undo;
mod warm;

pub use completions::answer_shell;

subcommands! {
    Run(run::Args) => run::run,
    Chat(chat::Args) => chat::run,
    Serve(serve::Args) => serve::run,
    Init(init::Args) => init::run,
    Check(check::Args) => check::run,
    Bench(bench::Args) => bench::run,
    Report(report::Args) => report::run,
    Models(models::Args) => models::run,
    Tune(tune::Args) => tune::run,
    Trace(trace::Args) => trace::run,
    Gate(gate::Args) => gate::run,
    Search(search::Args) => search::run,
    Undo(undo::Args) => undo::run,
    Cache(cache::Args) => cache::run,
    Warm(warm::Args) => warm::run,
    Config(config::Args) => config::run,
    Doctor(doctor::Args) => doctor::run,
    Debug(debug::Args) => debug::run,
    Completions(completions::Args) => completions::run,
    Man(man::Args) => man::run,
}
