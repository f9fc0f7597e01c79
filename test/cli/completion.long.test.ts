import { existsSync } from 'node:fs';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, onTestFinished, test } from 'vitest';
import { agentHome, fakeRelay, run } from '../support/cli.ts';
import { startWatch } from '../support/cpu.ts';
import { runSvc, temporaryHome } from '../support/process.ts';
import { openPty } from '../support/pty.ts';
import { pair, startNodeTarget } from '../support/relay.ts';
import { hasProgram } from '../support/terminal.ts';

const PROGRAM = fileURLToPath(new URL('../../dist/cli/svc.js', import.meta.url));

/** Names that do something when a shell evaluates them. */
const NAMES = [
  'Pixel 9',
  'Evil $(touch pwned)',
  'Grave `touch pwned`',
  `Quote's "x" $HOME`,
  'Back\\slash; touch pwned',
  'Wild * ~ {a,b} !1 & |',
  'Über 9',
];

const SHELLS: Record<string, { args: string[]; start: string }> = {
  bash: { args: ['--noprofile', '--norc', '-i'], start: "PS1='> '" },
  zsh: { args: ['-f', '-i'], start: "PS1='> '; autoload -Uz compinit && compinit -u -D" },
  fish: { args: ['--no-config', '-i'], start: "function fish_prompt; echo '> '; end" },
};

/** A `svc` that completes as the real one, and prints its arguments instead of running anything else. */
async function standIn(home: string): Promise<string> {
  const folder = join(home, 'bin');
  await mkdir(folder);
  const show = 'console.log("ARGS " + JSON.stringify(process.argv.slice(1)))';
  await writeFile(
    join(folder, 'svc'),
    `#!/bin/sh
[ "$1" = completion ] && exec '${process.execPath}' '${PROGRAM}' "$@"
exec '${process.execPath}' -e '${show}' -- "$@"
`,
  );
  await chmod(join(folder, 'svc'), 0o755);
  return folder;
}

const escaped = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');

describe('completion of values of now (contract 11 §4)', () => {
  for (const [name, { args, start }] of Object.entries(SHELLS)) {
    const isThere = hasProgram(name);
    if (!isThere) process.stderr.write(`SKIPPED: ${name} is not installed\n`);

    test.skipIf(!isThere)(`${name} completes and quotes what others named`, { timeout: 300_000 }, async () => {
      const relay = await startNodeTarget();
      let isStopped = false;
      const stop = async () => {
        if (!isStopped) await relay.stop();
        isStopped = true;
      };
      onTestFinished(stop);
      const variables = { SVC_HOME: relay.agentHome, RELAY_PORT: new URL(relay.url).port };
      const sent = await run(['phone', 'send', 'Dinner', '--json'], { env: variables });
      const id = JSON.parse(sent.stdout).message_id as string;
      expect(id).toMatch(/^\w{6,}/);
      await mkdir(join(relay.agentHome, 'profiles', 'work'), { recursive: true });
      await writeFile(join(relay.agentHome, 'profiles', 'work', 'config.yaml'), 'model: x\n');
      const paired = [];
      for (const device_name of NAMES) paired.push(await pair(relay, { device: { device_name } }));

      const home = await temporaryHome();
      const cwd = join(home, 'work');
      await mkdir(cwd);
      await writeFile(join(cwd, 'Pixel-file'), '');
      await writeFile(join(home, 'completion'), (await runSvc(['completion', name], { home })).stdout);
      const PATH = `${await standIn(home)}:${process.env.PATH}`;
      const env = { ...variables, PATH, HOME: home, ZDOTDIR: home, LANG: 'C.UTF-8' };
      const shell = openPty(name, args, { cols: 160, rows: 50, cwd, env });
      shell.type(`${start}; source ~/completion; echo rea""dy\r`);
      await shell.shows(/^ready/m);

      /** Types a line with its Tab, runs it, and waits for the arguments that `svc` got. */
      const gives = async (line: string, ...words: string[]) => {
        shell.type(`\u000c${line}\t\r`);
        await shell.shows(new RegExp(`^${escaped(`ARGS ${JSON.stringify(words)}`)}$`, 'm'));
      };
      for (const device of NAMES) await gives(`svc devices revoke ${device.slice(0, 4)}`, 'devices', 'revoke', device);
      await gives("svc devices rename 'Pix", 'devices', 'rename', 'Pixel 9');
      await gives('svc devices reduce "Pixel', 'devices', 'reduce', 'Pixel 9');
      await gives('svc devices extend --ttl 7d Pixel\\ ', 'devices', 'extend', '--ttl', '7d', 'Pixel 9');
      await gives('svc phone cancel ', 'phone', 'cancel', id);
      await gives('svc voice say x --profile wo', 'voice', 'say', 'x', '--profile', 'work');
      await gives('svc voice say x --profile=wo', 'voice', 'say', 'x', '--profile=work');
      // Devices of another relay are not those of this one, and files are no devices.
      const elsewhere = ['devices', '--relay', 'https://relay.example', 'revoke', 'Pix'];
      await gives(`svc ${elsewhere.join(' ')}`, ...elsewhere);
      for (const { client } of paired) client.close();
      await stop();
      await gives('svc devices reduce Pix', 'devices', 'reduce', 'Pix');
      expect(existsSync(join(cwd, 'pwned'))).toBe(false);
    });
  }

  test('a relay that does not answer holds Tab for about a second', async () => {
    const { port } = await fakeRelay(() => 'hang');
    const env = { SVC_HOME: agentHome(), RELAY_PORT: String(port) };
    // Loads what the command needs.
    await run(['completion', 'bash', '--values', 'devices'], { env: { ...env, RELAY_PORT: '1' } });
    const passed = startWatch();
    const { code, stdout, stderr } = await run(['completion', 'bash', '--values', 'devices'], { env });
    expect([code, stdout, stderr]).toEqual([0, '', '']);
    expect(passed()).toBeLessThan(4000);
  });
});
