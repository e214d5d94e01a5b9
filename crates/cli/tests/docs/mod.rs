//! README.md and docs: every link leads somewhere, and every command does what its page says.
//!
//! Blocks of `console` (lines after `$ `, with what they print) and `sh` (a script) are run, in a
//! folder for each page.
//! A block whose first line is a comment with a file's name is that file.
//! What is different about a block stands in a comment of HTML before it, which readers don't see:
//!
//! | mark | says |
//! |---|---|
//! | `needs: REASON` | it can't be run here; [`commands::REASONS`] has the reasons |
//! | `exit: N` | its commands end with this exit code |
//! | `in: repository` | it is run in a folder that has what the repository has |
//! | `goes: on` | it is a server: what follows is done while it runs, on another port than 8080 |
//! | `file: PATH` | it is this file |
//!
//! Of what a command prints the page may show a part: `…` stands for anything in a line, and alone
//! for any lines.
//! What a clock says is not compared.

mod commands;
mod links;
mod output;
mod page;
mod pictures;
mod security;
mod shells;
mod steps;
