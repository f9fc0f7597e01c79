// Stops an old Node with one sentence: its parser would fail at newer code with a stack. This must parse on Node 10, and
// is put at the beginning of the programs in `dist`.
const NEEDED = [20, 19];
const found = process.versions.node.split('.').map(Number);
if (found[0] < NEEDED[0] || (found[0] === NEEDED[0] && found[1] < NEEDED[1])) {
  process.stderr.write(`svc-relay needs Node ${NEEDED.join('.')} or newer, and this is Node ${found.join('.')}.\n`);
  process.exit(1);
}
