import { mkdir, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { agentHome } from '../support/cli.ts';
import { run } from '../support/companion-cli.ts';

const NAME = 'realtime-agent-20260102-030405-AbC.jsonl';
const LINES = [
  { type: 'voice.realtime_agent.session.created', provider: 'xai_realtime', model: 'grok', unix_ms: 1_767_000_000_000 },
  { type: 'svc.run.background_completed', ok: true },
  { type: 'voice.response.forced_summary_streaming' },
];

async function written(lines = LINES) {
  const home = agentHome();
  const folder = join(home, 'relay', 'realtime-agent-runs');
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, NAME), lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  await writeFile(join(folder, 'notes.jsonl'), '{}');
  const report = (...words: string[]) =>
    run(['relay', 'voice-report', ...words], { home, env: { SVC_RELAY_HOME: join(home, 'relay') } });
  return { folder, report };
}

it('reports the logs of the configured folder', async () => {
  const { folder, report } = await written();
  const { code, stdout, stderr } = await report();
  expect([code, stderr]).toEqual([0, '']);
  expect(stdout).toContain(`1 conversation in ${folder}\n`);
  expect(stdout).toMatch(/background tasks +1, of which 0 failed\n/);
  expect(stdout).toMatch(/spoken share +100 %\n/);
  expect(stdout).toMatch(/2025-12-29T\d\d:\d\d +xai_realtime +grok +1 background +100 % spoken\n/);
});

it('--json, --days and --run-dir', async () => {
  const { folder, report } = await written();
  const all = JSON.parse((await report('--json')).stdout);
  expect(all).toMatchObject({
    run_dir: folder,
    total: { early_commit: 1 },
    logs: [{ file: NAME, provider: 'xai_realtime' }],
  });
  const old = Date.now() / 1000 - 3 * 86_400;
  await utimes(join(folder, NAME), old, old);
  expect(JSON.parse((await report('--json', '--days', '2')).stdout).logs).toEqual([]);
  expect(JSON.parse((await report('--json', '--days', '4')).stdout).logs).toHaveLength(1);
  const none = await report('--run-dir', join(folder, 'none'));
  expect([none.code, none.stdout]).toEqual([0, expect.stringContaining('No conversations')]);
  expect((await report('--days', '0')).code).toBe(2);
  expect((await report('--run-dir', join(folder, NAME))).code).toBe(1);
});
