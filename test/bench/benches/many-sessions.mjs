import { startMeter } from '../support/cpu.mjs';
import { httpRate, httpRequest } from '../support/http.mjs';
import { authFrame, pairDevices } from '../support/processes.mjs';
import { connectRate, openSocket } from '../support/websocket.mjs';

const MANY = 2_000;
const FEW = 10;
const AT_ONCE = 8;
/** With many sessions an operation may cost 1.3 times what it costs with few. */
const MIN_RATIO = 1 / 1.3;

const isAnswer = (text) => JSON.parse(text).type === 'auth.ok';
const delay = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A relay that found `count` sessions in its state when it started, and tokens of some of them. */
async function relayWithStored(stage, count) {
  const first = await stage.relay();
  const tokens = await pairDevices(first, count);
  await stage.stop(first);
  const relay = await stage.relay({ env: { HOME: first.home, SVC_HOME: first.home } });
  const { sessions } = JSON.parse((await httpRequest(relay.port, 'GET', '/health')).body);
  if (sessions !== count) throw new Error(`${count} sessions were stored, and ${sessions} are there`);
  return { relay, tokens: tokens.slice(0, AT_ONCE) };
}

/** Pairs a few devices again and again: each pairing ends the session of the one before. */
async function pairRate(server) {
  let count = 0;
  let running = true;
  const loop = async (device) => {
    while (running) {
      const code = `P${device}${(count++).toString(36).padStart(4, '0')}`.toUpperCase();
      await httpRequest(server.port, 'POST', '/pairing/register', { body: JSON.stringify({ code }) });
      const socket = await openSocket(server.port, authFrame({ pairing_code: code, device_id: `bench-${device}` }));
      socket.end();
      if (!isAnswer(socket.first)) throw new Error(`unexpected answer: ${socket.first}`);
    }
  };
  const loops = Promise.all(Array.from({ length: AT_ONCE }, (_, device) => loop(device)));
  loops.catch(() => {});
  await Promise.race([delay(500), loops]);
  const before = count;
  const read = startMeter(server);
  await Promise.race([delay(1_500), loops]);
  const result = read(count - before);
  running = false;
  await loops;
  return result;
}

const operations = {
  health: { title: 'GET /health', measure: ({ relay }) => httpRate(relay, '/health') },
  connect: {
    title: 'connect and auth',
    measure({ relay, tokens }) {
      const offers = tokens.map((token) => authFrame({ session_token: token }));
      return connectRate(relay, offers, { isAnswer });
    },
  },
  pair: { title: 'register and pair', measure: ({ relay }) => pairRate(relay) },
};

/** The relay with many stored sessions; what stands for the baseline is the same relay with few. CPU alone counts. */
export default Object.entries(operations).map(([name, { title, measure }]) => ({
  name: `many-sessions-${name}`,
  title: `${title}, ${MANY} stored sessions over ${FEW}`,
  unit: 'per s of CPU',
  minRatio: MIN_RATIO,
  rounds: 5,
  async prepare(stage) {
    const [many, few] = [await relayWithStored(stage, MANY), await relayWithStored(stage, FEW)];
    const perSecond = (side) => async () => 1e6 / (await measure(side)).cpu;
    return { relay: perSecond(many), bare: perSecond(few) };
  },
}));
