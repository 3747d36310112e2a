//! Tests of the room, on a machine that is nothing but words.
mod behaviour;
mod board;
mod embedding;
mod formats;
#[cfg(loom)]
mod interleavings;
mod table_model;
mod threads;
