import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { systemClock } from '../../../../../lib/kit/clock.ts';
import { createProfileFiles } from '../../../../../lib/profiles/profile-files.ts';
import { readProfileBlock } from '../../../../../lib/voice/agent/text/profile-block.ts';
import { createTestHost } from '../../../../support/host.ts';
import { createTestLog } from '../../../../support/log.ts';
import { temporaryDirectory } from '../../../../support/temp.ts';

async function blockOf(files: Record<string, string>, profile: string | null = null, directories: string[] = []) {
  const agentHome = await temporaryDirectory(files);
  for (const name of directories) await mkdir(join(agentHome, name));
  const log = createTestLog();
  const config = { agentConfig: join(agentHome, 'config.yaml'), mediaMaxSizeMb: 1, relayHome: `${agentHome}/relay` };
  const host = createTestHost({ agentHome, env: {} });
  onTestFinished(() => host.yaml.close());
  const profileFiles = createProfileFiles({ host, config, clock: systemClock, log });
  return { block: await readProfileBlock(profileFiles, profile, log), log };
}

describe('profile block (contract 06 §5.4)', () => {
  it('has description, persona and memories in their order', async () => {
    const { block } = await blockOf({
      'config.yaml': 'description: A butler',
      'SOUL.md': '# Calm\n',
      'memories/zoo.md': 'Likes otters',
      'memories/USER.md': 'Is called Ada',
      'memories/MEMORY.md': 'Has a train',
    });
    expect(block).toBe(
      [
        'Description: A butler',
        'Persona:\n# Calm',
        'Memory MEMORY.md:\nHas a train',
        'Memory USER.md:\nIs called Ada',
        'Memory zoo.md:\nLikes otters',
      ].join('\n\n'),
    );
  });

  it('is bounded', async () => {
    const { block } = await blockOf({
      'SOUL.md': 's'.repeat(7000),
      ...Object.fromEntries(['a', 'b', 'c', 'd'].map((name) => [`memories/${name}.md`, name.repeat(2500)])),
    });
    expect(block).toContain(`Persona:\n${'s'.repeat(5999)}…\n\nMemory a.md:\n${'a'.repeat(1999)}…\n\n`);
    expect(block).toMatch(/Memory c\.md:\nc{1999}…$/);
  });

  it('has four memory files at most', async () => {
    const names = ['a', 'b', 'c', 'd', 'e'];
    const { block } = await blockOf(Object.fromEntries(names.map((name) => [`memories/${name}.md`, name])));
    expect(block).toMatch(/Memory d\.md:\nd$/);
  });

  it('is that of the named profile', async () => {
    const files = { 'SOUL.md': 'root', 'profiles/work/SOUL.md': 'work' };
    expect((await blockOf(files, 'work')).block).toBe('Persona:\nwork');
    expect((await blockOf(files, 'default')).block).toBe('Persona:\nroot');
  });

  it('leaves out what cannot be read, and is empty without a profile or a host', async () => {
    const files = { 'config.yaml': ': [', 'memories/a.md': 'remembered' };
    expect((await blockOf(files, null, ['SOUL.md'])).block).toBe('Memory a.md:\nremembered');
    expect((await blockOf({}, 'missing')).block).toBe('');
    expect(await readProfileBlock(undefined, null, createTestLog())).toBe('');
  });

  it('is never logged', async () => {
    const { log } = await blockOf({
      'config.yaml': 'description: [secret',
      'SOUL.md': 'secret',
      'memories/a.md': 'secret',
    });
    expect(log.lines.join('\n')).not.toContain('secret');
  });
});
