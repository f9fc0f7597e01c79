import { median } from './bench.mjs';
import { authFrame, pairDevices } from './processes.mjs';
import { openSocket, textFrame } from './websocket.mjs';

const FLOOD = 'yes | head -c 60000000';
/** Every line end of the flood takes one byte more on a terminal. */
const FLOOD_BYTES = 90_000_000;
const KEYS = 300;

/** Shells of a relay, and the same without one. */
export async function prepareShells(stage, env) {
  const relay = await stage.relay({ env });
  const [token] = await pairDevices(relay, 1);
  const bare = await stage.bare('pty');
  const ask = async (path) => Number(await (await fetch(`http://127.0.0.1:${bare.port}${path}`)).text());
  return {
    /** Megabytes per second that reach a client. */
    async flood() {
      const shell = await openShell(relay.port, token);
      const began = performance.now();
      shell.type(`${FLOOD}; echo E'N'D\r`);
      await shell.until('END');
      const seconds = (performance.now() - began) / 1000;
      shell.end();
      return FLOOD_BYTES / 1e6 / seconds;
    },
    bareFlood: async () => (await ask(`/flood?${encodeURIComponent(FLOOD)}`)) / 1e6,
    /** Milliseconds from a keystroke to its echo, the median. */
    async echo() {
      const shell = await openShell(relay.port, token);
      shell.type('cat\r');
      await shell.until('cat\\r\\n');
      const times = [];
      for (let key = 0; key < KEYS; key++) {
        const began = performance.now();
        shell.type('x');
        await shell.until('x');
        times.push(performance.now() - began);
      }
      shell.end();
      return median(times);
    },
    bareEcho: () => ask(`/echo?${KEYS}`),
  };
}

/** A fresh shell with its prompt. */
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
      // Only the message's own bytes: no copy is made of them.
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
