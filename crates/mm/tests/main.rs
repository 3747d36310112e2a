//! The manager's behaviour, on the simulated machine: one program, since each would have the whole
//! manager compiled again.

mod common;

mod adapt;
mod breaking;
mod collapse;
mod compact;
mod counted;
mod descents;
mod exhaustion;
mod faults;
mod findings_areas;
mod findings_kernel;
mod findings_latency;
mod findings_objects;
mod findings_rights;
mod findings_rmap;
mod findings_stock;
mod flushes;
mod formats;
mod groups;
mod guesses;
mod hugetlb;
mod memmap;
mod memory;
mod objects;
mod objects_refused;
mod pairs;
mod pool;
mod private_huge;
mod races;
mod rare;
mod requests;
mod rmap_model;
mod split;
mod stale_rights;
mod tags;
mod traps_a;
mod traps_h;
mod traps_h_pool;
mod traps_t;
mod traps_v;
mod traps_z;
mod vmap;
mod vmap_model;
mod zeros;
