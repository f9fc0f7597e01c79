import { median } from '../support/bench.mjs';
import { startMeter } from '../support/cpu.mjs';
import { httpRate, httpRequest } from '../support/http.mjs';
import { beginSession, message } from '../support/mcp.mjs';
import { startPhone, TAP } from '../support/phone.mjs';
import { pairDevices } from '../support/processes.mjs';

const CALL = message('tools/call', { name: 'android_tap', arguments: JSON.parse(TAP.body) });
const SESSIONS = 20;

/** `tools/call` beside the route of the same call, by server CPU. One at a time: ids of requests in a session must differ. */
const calls = {
  name: 'mcp-call',
  title: 'MCP tools/call of a tap beside POST /tap, server CPU per call',
  unit: 'us',
  maxRatio: 1.6,
  rounds: 5,
  async prepare(stage) {
    const relay = await stage.relay();
    const [token] = await pairDevices(relay, 1);
    const headers = { authorization: `Bearer ${token}` };
    const measure = async (path, call, body) => {
      const phone = await startPhone(relay.port, token);
      try {
        const { cpu } = await httpRate(relay, path, await call(), { method: 'POST', body, connections: 1 });
        return cpu;
      } finally {
        phone.end();
      }
    };
    return {
      relay: () => measure('/mcp', () => beginSession(relay, headers), CALL),
      bare: () => measure(TAP.path, () => headers, TAP.body),
    };
  },
};

/** `initialize` and `tools/list` of a further session, beside `GET /health`. */
const begin = {
  name: 'mcp-begin',
  title: 'MCP initialize + tools/list, server CPU after the first',
  unit: 'ms',
  max: 10,
  async prepare(stage) {
    const relay = await stage.relay();
    const [token] = await pairDevices(relay, 1);
    const headers = { authorization: `Bearer ${token}` };
    const start = async () => {
      const session = await beginSession(relay, headers);
      await httpRequest(relay.port, 'POST', '/mcp', { headers: session, body: message('tools/list') });
    };
    await start();
    const perCall = async (work) => {
      const costs = [];
      for (let count = 0; count < SESSIONS; count++) {
        const read = startMeter(relay);
        await work();
        costs.push(read(1).cpu / 1000);
      }
      return median(costs);
    };
    return {
      relay: () => perCall(start),
      bare: () => perCall(() => httpRequest(relay.port, 'GET', '/health')),
    };
  },
};

export default [calls, begin];
