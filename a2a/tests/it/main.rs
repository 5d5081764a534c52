//! The edge over real sockets: agents of other systems ask those of a workspace.

mod cards;
mod circle;
mod driver;
mod loops;
mod partner;
mod push;
mod streams;
mod tasks;
mod world;
