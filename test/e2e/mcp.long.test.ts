import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { expect, it } from 'vitest';
import { runSvc, startRelayProcess } from '../support/process.ts';

const SVC = join(import.meta.dirname, '../../dist/cli/svc.js');

it('an agent starts svc mcp, which outlives a kill of the relay (contract 09 §7)', async () => {
  const relay = await startRelayProcess();
  const env = { RELAY_PORT: String(relay.port) };
  const paired = await runSvc(['mcp', 'pair', '--only', 'phone'], { home: relay.home, env });
  expect([paired.code, paired.stderr]).toEqual([0, '']);
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [SVC, 'mcp'],
    env: { ...env, SVC_HOME: relay.home, HOME: relay.home, PATH: process.env.PATH ?? '' },
  });
  const client = new Client({ name: 'agent', version: '1' });
  await client.connect(transport);
  const names = async () => (await client.listTools()).tools.map(({ name }) => name);
  expect(await names()).toEqual(['phone_send', 'phone_ask', 'phone_approve', 'phone_inbox', 'device_list']);
  const sent = await client.callTool({ name: 'phone_send', arguments: { text: 'Hello' } });
  expect(JSON.stringify(sent.content)).toContain('queued');
  await relay.kill();
  await expect(names()).rejects.toThrow(/svc relay start/);
  await relay.restart();
  expect(await names()).toContain('phone_ask');
  await client.close();
});
