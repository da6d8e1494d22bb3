// The simulator in a thread of its own: a job's text in, the engine's lines out.
'use strict';
const MOST_BYTES = 96 * 2 ** 20;  // memory of a module never shrinks: beyond this a new one begins
let module, simulator;

const started = () => new WebAssembly.Instance(module, {}).exports;

function answered(text) {
  const job = new TextEncoder().encode(text);
  if (!simulator || simulator.memory.buffer.byteLength > MOST_BYTES) simulator = started();
  // A call may move the memory: it is looked at afterwards.
  const room = simulator.room(job.length);
  new Uint8Array(simulator.memory.buffer, room, job.length).set(job);
  const bytes = simulator.answer(), at = simulator.answer_at();
  return new TextDecoder().decode(new Uint8Array(simulator.memory.buffer, at, bytes));
}

onmessage = ({data}) => {
  if (data.module) { module = data.module; return; }
  try {
    const text = answered(data.text);
    postMessage({number: data.number, text, bytes: simulator.memory.buffer.byteLength});
  } catch (error) {
    simulator = null;  // what a trap left is not used again
    postMessage({number: data.number, failure: String(error)});
  }
};
