//! The core from outside: golden transcripts, the tables, and what each guard is good for.

mod script;
mod tables;
mod transcripts;
