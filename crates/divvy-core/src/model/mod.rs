//! The things that state is made of.

pub mod affinity;
pub mod allocation;
pub mod ask;
pub mod attempt;
pub mod borrowing;
pub mod choice;
pub mod device;
pub mod extras;
pub mod gang;
pub mod island;
pub mod job;
pub mod members;
mod misread;
pub mod mix;
pub mod moves;
pub mod newer;
pub mod node;
pub mod pace;
pub mod policy;
pub mod prices;
pub mod promise;
pub mod queue;
pub mod recollection;
pub mod reservation;
pub mod score;
pub mod topology;
pub mod ways;
