import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { bearer, describeMatrix, pair, type Target } from '../support/relay.ts';

async function read(target: Target, token: string) {
  const response = await target.fetch('/context/injected', { headers: bearer(token) });
  expect(response.status).toBe(200);
  return response.json();
}

const names = ({ blocks }: { blocks: { name: string }[] }) => blocks.map(({ name }) => name);

describeMatrix('GET /context/injected (contract 04 §8)', (start, runtime) => {
  it('needs a bearer, also on loopback', async () => {
    const target = await start();
    expect((await target.fetch('/context/injected')).status).toBe(401);
    // At the edge that is the operator's token: there are no tools of a host.
    expect((await target.operator('/context/injected')).status).toBe(runtime === 'node' ? 401 : 200);
  });

  if (runtime === 'node') {
    it('is open to a host tool, such as the dashboard plugin, that says so', async () => {
      const target = await start();
      const tool = { 'x-svc-operator': '1' };
      expect((await target.operator('/context/injected', { headers: tool })).status).toBe(200);
      const foreign = { ...tool, 'x-forwarded-for': '192.0.2.1' };
      expect((await target.operator('/context/injected', { headers: foreign })).status).toBe(401);
      const invalid = { ...tool, ...bearer('wrong') };
      expect((await target.operator('/context/injected', { headers: invalid })).status).toBe(401);
    });
  }

  it('is on by default, without the block for phones', async () => {
    const target = await start();
    const { token } = await pair(target);
    const context = await read(target, token);
    expect(context).toEqual({ enabled: true, blocks: [{ name: 'media-sensitivity', text: expect.any(String) }] });
    for (const word of ['||![alt](path)||', 'nsfw', 'sensitive', 'spoiler'])
      expect(context.blocks[0].text).toContain(word);
  });

  if (runtime === 'edge') {
    it('follows the variables of the deployment', async () => {
      const target = await start({ env: { PHONE_ENABLED: '1', RELAY_CONTEXT_MEDIA_SENSITIVITY: 'off' } });
      const { token } = await pair(target);
      expect(names(await read(target, token))).toEqual(['phone-platform']);
    });
    return;
  }

  it('reads the .env of the agent home on every request', async () => {
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
