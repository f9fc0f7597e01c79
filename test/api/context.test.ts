import { chmod, mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../../lib/config.ts';
import { createInjectedContext } from '../../lib/context/injected.ts';
import { createNodeHost } from '../../lib/host/node/index.ts';
import { createTestLog } from '../support/log.ts';
import { bearer, describeMatrix, pair, type Target } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temp.ts';

async function read(target: Target, token: string) {
  const response = await target.fetch('/context/injected', { headers: bearer(token) });
  expect(response.status).toBe(200);
  return response.json();
}

const names = ({ blocks }: { blocks: { name: string }[] }) => blocks.map(({ name }) => name);

describeMatrix('injected context (04 §8)', (start, runtime) => {
  it('needs a bearer, also from loopback', async () => {
    const target = await start();
    expect((await target.operator('/context/injected')).status).toBe(401);
  });

  it('is on by default, without the phone', async () => {
    const target = await start();
    const { token } = await pair(target);
    const context = await read(target, token);
    expect(context).toEqual({ enabled: true, blocks: [{ name: 'media-sensitivity', text: expect.any(String) }] });
    for (const word of ['||![alt](path)||', 'nsfw', 'sensitive', 'spoiler'])
      expect(context.blocks[0].text).toContain(word);
  });

  if (runtime === 'edge') {
    it('follows the variables', async () => {
      const target = await start({ env: { PHONE_ENABLED: '1', RELAY_CONTEXT_MEDIA_SENSITIVITY: 'off' } });
      const { token } = await pair(target);
      expect(names(await read(target, token))).toEqual(['phone-platform']);
    });
    return;
  }

  it('follows the .env of the agent home with every request', async () => {
    const target = await start();
    const { token } = await pair(target);
    const write = (text: string) => writeFile(join(target.agentHome, '.env'), text);
    await write('export PHONE_ENABLED="yes" # on\n');
    const both = await read(target, token);
    expect(names(both)).toEqual(['media-sensitivity', 'phone-platform']);
    expect(both.blocks[1].text).toMatch(/phone/);
    for (const { text } of both.blocks) expect(text.length).toBeLessThan(4000);
    await write("PHONE_ENABLED=1\nRELAY_CONTEXT_PHONE_PLATFORM='off'\nRELAY_CONTEXT_MEDIA_SENSITIVITY=no\n");
    expect(await read(target, token)).toEqual({ enabled: true, blocks: [] });
    await write('RELAY_AGENT_CONTEXT_ENABLED=\nPHONE_ENABLED=1\n');
    expect(await read(target, token)).toEqual({ enabled: false, blocks: [] });
    await rm(join(target.agentHome, '.env'));
    expect(names(await read(target, token))).toEqual(['media-sensitivity']);
  });
});

describe('the flags of injected context', () => {
  async function setup(env: Record<string, string>, file?: string) {
    const home = await temporaryDirectory(file === undefined ? {} : { '.env': file });
    const log = createTestLog();
    const { config } = readConfig({}, { home, agentHome: home });
    return {
      home,
      log,
      context: createInjectedContext({ host: createNodeHost({ agentHome: home, env }), config, log }),
    };
  }

  it('come from the file before the environment', async () => {
    const { context } = await setup({ PHONE_ENABLED: '1', RELAY_CONTEXT_MEDIA_SENSITIVITY: '0' }, 'PHONE_ENABLED=0\n');
    expect(await context.read()).toEqual({ enabled: true, blocks: [] });
  });

  it('are the default for another text, which is said once', async () => {
    const { context, log } = await setup({}, 'RELAY_AGENT_CONTEXT_ENABLED=SECRET\nPHONE_ENABLED=2\n');
    expect(names(await context.read())).toEqual(['media-sensitivity']);
    await context.read();
    expect(log.lines.filter((line) => line.includes('WARNING'))).toHaveLength(2);
    expect(log.lines.join()).not.toContain('SECRET');
  });

  it('do without a file that cannot be read', async () => {
    const { context, home } = await setup({ PHONE_ENABLED: '1' });
    await mkdir(join(home, '.env'));
    await chmod(join(home, '.env'), 0);
    expect(names(await context.read())).toEqual(['media-sensitivity', 'phone-platform']);
  });
});
