import { median } from './bench.mjs';
import { startMeter } from './cpu.mjs';
import { authFrame, pairDevices } from './processes.mjs';
import { openSocket, textFrame } from './websocket.mjs';

const FLOOD = 'yes | head -c 60000000';
/** A terminal turns each of the flood's line feeds into two bytes. */
const FLOOD_MB = 90;
const KEYS = 300;

/** Measurements of shells behind a relay, and of the same shells on a bare pseudo-terminal. */
export async function prepareShells(stage, env) {
  const relay = await stage.relay({ env });
  const [token] = await pairDevices(relay, 1);
  const bare = await stage.bare('pty');
  /** Has the baseline measure itself; `operations` are those done meanwhile. */
  const ask = async (path, operations) => {
    const read = startMeter(bare);
    const value = Number(await (await fetch(`http://127.0.0.1:${bare.port}${path}`)).text());
    return { value, cpu: read(operations).cpu };
  };
  return {
    /** Megabytes per second that reach a client, and server CPU per megabyte. */
    async flood() {
      const shell = await openShell(relay.port, token);
      const read = startMeter(relay);
      shell.type(`${FLOOD}; echo E'N'D\r`);
      await shell.until('END');
      const measured = read(FLOOD_MB);
      shell.end();
      return measured;
    },
    bareFlood: () => ask(`/flood?${encodeURIComponent(FLOOD)}`, FLOOD_MB),
    /** Median milliseconds from a keystroke to its echo, and server CPU per keystroke. */
    async echo() {
      const shell = await openShell(relay.port, token);
      shell.type('cat\r');
      await shell.until('cat\\r\\n');
      const times = [];
      const read = startMeter(relay);
      for (let key = 0; key < KEYS; key++) {
        const began = performance.now();
        shell.type('x');
        await shell.until('x');
        times.push(performance.now() - began);
      }
      const { cpu } = read(KEYS);
      shell.end();
      return { value: median(times), cpu };
    },
    bareEcho: () => ask(`/echo?${KEYS}`, KEYS),
  };
}

/** Opens a new shell and waits for its prompt. */
async function openShell(port, token) {
  const socket = await openSocket(port, authFrame({ session_token: token }));
  let wanted = Buffer.from('"terminal.attached"');
  let found;
  let failed;
  const until = (text) => {
    wanted = Buffer.from(text);
    return new Promise((resolve, reject) => {
      found = resolve;
      failed = reject;
    });
  };
  socket.listen({
    failed: (error) => failed?.(error),
    text(buffer, start, end) {
      // Searches the message in place, without copying it.
      if (buffer.subarray(start, end).includes(wanted)) found?.();
    },
  });
  const send = (type, payload) =>
    socket.write(textFrame(JSON.stringify({ channel: 'terminal', type: `terminal.${type}`, id: 'bench', payload })));
  const attached = until('"terminal.attached"');
  send('attach', { session_name: crypto.randomUUID(), shell: '/bin/bash' });
  await attached;
  const prompt = until('$ ');
  send('input', { data: "PS1='$ '\r" });
  await prompt;
  return {
    until,
    type: (data) => send('input', { data }),
    end() {
      send('kill', {});
      socket.end();
    },
  };
}
