import { mkdirSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { agentHome, run } from '../support/cli.ts';

const created = { type: 'voice.realtime_agent.session.created', model: 'gpt-realtime-2.1', unix_ms: 0 };
const closed = {
  type: 'voice.realtime_agent.session.closed',
  unix_ms: 12 * 60_000,
  usage: { input_tokens: 40_000, output_tokens: 9000, input_audio_tokens: 30_000, output_audio_tokens: 4000 },
};

function setUp() {
  const home = agentHome();
  const env = { SVC_HOME: home, HOME: home };
  const directory = join(home, '.svc-relay', 'realtime-agent-runs');
  mkdirSync(directory, { recursive: true });
  const write = (name: string, ...events: object[]) =>
    writeFileSync(join(directory, name), events.map((event) => `${JSON.stringify(event)}\n`).join(''));
  return { directory, write, report: (...words: string[]) => run(['relay', 'voice-report', ...words], { env }) };
}

it('06 §10: shows what each conversation used, and how results were delivered', async () => {
  const { directory, write, report } = setUp();
  write('realtime-agent-20261124-090000-abcDEF123456.jsonl', created, closed);
  write('realtime-agent-20261101-090000-abcDEF123456.jsonl', { type: 'voice.response.forced_summary_delivered' });
  write('another-file.jsonl', closed);
  utimesSync(join(directory, 'realtime-agent-20261101-090000-abcDEF123456.jsonl'), 1, 1);
  const { code, stdout } = await report();
  expect(code).toBe(0);
  expect(stdout).toMatch(/20261124-090000 +gpt-realtime-2\.1 +12 min +34k +49k +0/);
  expect(stdout).toMatch(/Spoken results +1 \(100 %\)/);
  const json = JSON.parse((await report('--json', '--days', '30')).stdout);
  expect(json.logs).toMatchObject([{ log: 'realtime-agent-20261124-090000-abcDEF123456.jsonl', duration_ms: 720_000 }]);
  expect(json.total.usage).toMatchObject({ input_audio_tokens: 30_000, output_audio_tokens: 4000, cached_tokens: 0 });
});

it('06 §10: a folder without logs has none, and a bad number of days is refused', async () => {
  const { report } = setUp();
  expect((await report()).stdout).toMatch(/^No conversations in /);
  const missing = await report('--run-dir', '/nonexistent/folder', '--json');
  expect(JSON.parse(missing.stdout)).toMatchObject({ logs: [], total: { provider_spoken_rate: null } });
  expect(await report('--days', '0')).toMatchObject({ code: 2 });
});
