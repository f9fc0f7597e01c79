import { chmod, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../../../lib/config.ts';
import { createInjectedContext } from '../../../lib/context/injected.ts';
import { createTestHost } from '../../support/host.ts';
import { createTestLog } from '../../support/log.ts';
import { temporaryDirectory } from '../../support/temp.ts';

const names = ({ blocks }: { blocks: { name: string }[] }) => blocks.map(({ name }) => name);

describe('flags of injected context (contract 04 §8)', () => {
  async function setup(env: Record<string, string>, file?: string) {
    const home = await temporaryDirectory(file === undefined ? {} : { '.env': file });
    const log = createTestLog();
    const { config } = readConfig({}, { home, agentHome: home });
    return {
      home,
      log,
      context: createInjectedContext({ host: createTestHost({ agentHome: home, env }), config, log }),
    };
  }

  it('come from the file before the environment', async () => {
    const { context } = await setup({ PHONE_ENABLED: '1', RELAY_CONTEXT_MEDIA_SENSITIVITY: '0' }, 'PHONE_ENABLED=0\n');
    expect(await context.read()).toEqual({ enabled: true, blocks: [] });
  });

  it('fall back to the default for other values, with one warning', async () => {
    const { context, log } = await setup({}, 'RELAY_AGENT_CONTEXT_ENABLED=SECRET\nPHONE_ENABLED=2\n');
    expect(names(await context.read())).toEqual(['media-sensitivity']);
    await context.read();
    expect(log.lines.filter((line) => line.includes('WARNING'))).toHaveLength(2);
    expect(log.lines.join()).not.toContain('SECRET');
  });

  it('ignore an unreadable file', async () => {
    const { context, home } = await setup({ PHONE_ENABLED: '1' });
    await mkdir(join(home, '.env'));
    await chmod(join(home, '.env'), 0);
    expect(names(await context.read())).toEqual(['media-sensitivity', 'phone-platform']);
  });
});
