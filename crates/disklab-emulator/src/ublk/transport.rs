//! ublk as a source of requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::ring::{Owner, Ring, label};
use crate::transport::{Errno, Gone, Request, Shown, Slot, Transport, VolumeIndex};
use crate::ublk::control::QUEUE_DEPTH;
use crate::ublk::protocol::ABORTED;
use crate::ublk::queue::Queue;

/// Queues on their way from the thread that adds devices to the driver's, by the volume's name.
#[derive(Clone, Default)]
pub struct Opened(Arc<Mutex<HashMap<String, Queue>>>);

impl Opened {
    /// Leaves a queue for the driver, which takes it when the volume of that name is shown.
    pub fn put(&self, volume: &str, queue: Queue) {
        self.queues().insert(volume.to_owned(), queue);
    }

    /// Takes the queue of a volume, if the driver has not.
    pub fn take(&self, volume: &str) -> Option<Queue> {
        self.queues().remove(volume)
    }

    fn queues(&self) -> std::sync::MutexGuard<'_, HashMap<String, Queue>> {
        // A panic ends the process, so nobody can have left the map half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Served {
    queue: Queue,
    volume: VolumeIndex,
}

/// All ublk devices of a host. Each has [`QUEUE_DEPTH`] slots in a row; a slot is the token of its
/// ring entries too.
pub struct UblkTransport {
    opened: Opened,
    // A place stays taken until the kernel has given back every tag of a stopped device.
    places: Vec<Option<Served>>,
}

impl UblkTransport {
    /// A transport without devices, which takes new ones from `opened`.
    pub fn new(opened: Opened) -> UblkTransport {
        UblkTransport {
            opened,
            places: Vec::new(),
        }
    }

    fn served(&mut self, slot: Slot) -> Option<(&mut Served, u16)> {
        let (place, tag) = split(slot);
        Some((self.places.get_mut(place)?.as_mut()?, tag))
    }
}

/// Place and tag of a slot.
fn split(slot: Slot) -> (usize, u16) {
    let depth = u32::from(QUEUE_DEPTH);
    ((slot.0 / depth) as usize, (slot.0 % depth) as u16)
}

/// The slot of a tag.
fn slot(place: usize, tag: u16) -> Slot {
    Slot(place as u32 * u32::from(QUEUE_DEPTH) + u32::from(tag))
}

/// Queues an entry of a queue.
fn push(ring: &mut Ring, entry: io_uring::squeue::Entry, slot: Slot) {
    let entry = entry.user_data(label(Owner::Transport, slot.0));
    // SAFETY: the entry points to its tag's buffer, which a queue keeps while the kernel has the tag.
    // A ring that takes no entries has gone, which the driver's next wait tells.
    let _ = unsafe { ring.push(entry) };
}

impl Transport for UblkTransport {
    fn complete(
        &mut self,
        ring: &mut Ring,
        token: u32,
        result: i32,
        requests: &mut Vec<Request>,
    ) -> Result<(), Gone> {
        let slot = Slot(token);
        let Some((served, tag)) = self.served(slot) else {
            return Ok(());
        };
        let others = served.queue.returned();
        if result < 0 {
            // ABORTED: the device was stopped. Anything else: the kernel refused the entry, and the
            // tag is lost to the device.
            debug_assert_eq!(result, ABORTED, "ublk refused tag {tag}");
            if !others {
                self.places[split(slot).0] = None;
            }
            return Ok(());
        }
        match served.queue.asked(tag) {
            Ok(asked) => requests.push(Request {
                slot,
                volume: served.volume,
                op: asked.op,
                offset: asked.offset,
                len: asked.len,
            }),
            Err(errno) => push(ring, served.queue.commit(tag, Err(errno)), slot),
        }
        Ok(())
    }

    fn data(&mut self, slot: Slot) -> &mut [u8] {
        match self.served(slot) {
            Some((served, tag)) => served.queue.data(tag),
            None => &mut [],
        }
    }

    fn reply(&mut self, ring: &mut Ring, slot: Slot, result: Result<u32, Errno>) {
        if let Some((served, tag)) = self.served(slot) {
            let entry = served.queue.commit(tag, result);
            push(ring, entry, slot);
        }
    }

    fn show(&mut self, ring: &mut Ring, volume: VolumeIndex, shown: Option<Shown>) -> u32 {
        // Hiding needs nothing: stopping the device brings every tag back, and with the last one the
        // queue goes.
        if let Some(mut queue) = shown.and_then(|shown| self.opened.take(&shown.name)) {
            let free = self.places.iter().position(Option::is_none);
            let place = free.unwrap_or(self.places.len());
            for tag in 0..QUEUE_DEPTH {
                push(ring, queue.fetch(tag), slot(place, tag));
            }
            let served = Some(Served { queue, volume });
            match free {
                Some(place) => self.places[place] = served,
                None => self.places.push(served),
            }
        }
        self.places.len() as u32 * u32::from(QUEUE_DEPTH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_dense_and_come_apart_again() {
        let depth = u32::from(QUEUE_DEPTH);
        for number in 0..3 * depth {
            let (place, tag) = split(Slot(number));
            assert!(tag < QUEUE_DEPTH);
            assert_eq!(slot(place, tag), Slot(number));
        }
        assert_eq!(split(Slot(depth)), (1, 0));
    }
}
