//! One file a command: its arguments, whose doc comments are the help, and one function.

pub mod bench;
pub mod cache;
pub mod chat;
pub mod check;
pub mod debug;
pub mod doctor;
pub mod init;
pub mod models;
pub mod report;
pub mod run;
pub mod serve;
pub mod trace;
pub mod warm;
