//! README.md and docs: every link works, and every command does what its page shows.
//!
//! Blocks of `console` (lines after `$ `, with their output) and `sh` (a script) are run, in one
//! folder per page.
//! A block whose first line is a comment with a file name is that file, with the comment.
//! JSON has no comments, so the mark `file` names such a file, and so does the text before it.
//! Anything special about a block is in an HTML comment before it, which readers don't see:
//!
//! | mark | meaning |
//! |---|---|
//! | `needs: REASON` | it can't run here; [`commands::REASONS`] has the reasons |
//! | `exit: N` | its commands end with this exit code |
//! | `in: repository` | it runs in a folder with the repository's contents |
//! | `goes: on` | it is a server: the next blocks run while it does, on another port than 8080 |
//! | `file: PATH` | it is this file |
//!
//! The page may show part of a command's output: `…` matches anything within a line, and on a line
//! of its own any lines.
//! Times aren't compared.

mod commands;
mod links;
mod output;
mod page;
mod pictures;
mod security;
mod shells;
mod steps;
mod tools;
