import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isManagedUnit, unitText } from '../../../../lib/operator/service/unit.ts';
import { temporaryDirectory } from '../../../support/temp.ts';

const plain = { node: '/usr/bin/node', script: '/opt/svc-relay/dist/cli/svc-relay.js', agentHome: '/home/ann/.svc' };

const value = (text: string, key: string): string =>
  text
    .split('\n')
    .find((line) => line.startsWith(`${key}=`))
    ?.slice(key.length + 1) ?? '';

/** Reads words as systemd does: double quotes, C escapes, `%%`; and in arguments `$$` (systemd.service(5), systemd.syntax(7)). */
function words(line: string): string[] {
  const found: string[] = [];
  const at = /"((?:[^"\\]|\\.)*)"(?: |$)/gy;
  for (let match = at.exec(line); match; match = at.exec(line)) {
    const unescaped = (match[1] as string).replace(
      /\\(?:x([0-9a-f]{2})|(.))/g,
      (_, hex?: string, character?: string) =>
        hex === undefined ? (character as string) : String.fromCharCode(Number.parseInt(hex, 16)),
    );
    expect(unescaped.replaceAll('%%', '')).not.toContain('%');
    found.push(unescaped.replaceAll('%%', '%'));
  }
  expect(found.map((_, index) => index).length).toBeGreaterThan(0);
  return found;
}

function arguments_(line: string): string[] {
  const [program, ...rest] = words(line);
  for (const word of rest) expect(word.replaceAll('$$', '')).not.toContain('$');
  return [program as string, ...rest.map((word) => word.replaceAll('$$', '$'))];
}

describe('the unit file', () => {
  it('has exactly this text', () => {
    expect(unitText({ ...plain, path: '/usr/local/bin:/usr/bin' })).toBe(`# managed-by: svc relay service v1
# Written by 'svc relay service install'; 'svc relay service remove' takes it away.
[Unit]
Description=svc-relay, the relay between a phone and the agent of this machine
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
Type=exec
ExecStart="/usr/bin/node" "/opt/svc-relay/dist/cli/svc-relay.js" "start"
Environment="SVC_HOME=/home/ann/.svc"
Environment="PATH=/usr/local/bin:/usr/bin"
Restart=on-failure
RestartSec=2
# Exit 2 is a wrong setting: trying again does not mend it.
RestartPreventExitStatus=2
TimeoutStopSec=10
# The relay ends what it started. Shells kept in tmux are to outlive it, and the default would end them too.
KillMode=process
UMask=0077

[Install]
WantedBy=default.target
`);
    expect(isManagedUnit(unitText(plain))).toBe(true);
    expect(isManagedUnit('[Unit]\n')).toBe(false);
  });

  it('keeps spaces, percent signs, dollars and quotes of paths', () => {
    const text = unitText({
      node: '/opt/my $node 100%/bin/node',
      script: '/srv/a "b" $c $HOME 5%/x.js',
      agentHome: '/home/ann/agent %h $HOME\\',
    });
    expect(value(text, 'ExecStart')).toBe(
      '"/opt/my $node 100%%/bin/node" "/srv/a \\"b\\" $$c $$HOME 5%%/x.js" "start"',
    );
    expect(value(text, 'Environment')).toBe('"SVC_HOME=/home/ann/agent %%h $HOME\\\\"');
  });

  it('writes any path so that systemd reads it back, one line per setting', () => {
    const name = fc.string({ unit: fc.constantFrom(...' %$"\'\\\n\tab;#={}/'), minLength: 1, maxLength: 20 });
    fc.assert(
      fc.property(name, name, (script, home) => {
        const text = unitText({ ...plain, script: `/s/${script}`, agentHome: `/h/${home}` });
        expect(arguments_(value(text, 'ExecStart'))).toEqual([plain.node, `/s/${script}`, 'start']);
        expect(words(value(text, 'Environment'))).toEqual([`SVC_HOME=/h/${home}`]);
        expect(text.split('\n')).toHaveLength(unitText(plain).split('\n').length);
      }),
    );
  });

  it('refuses a Node binary that systemd cannot run', () => {
    for (const node of ['node', '/opt/no"de', "/opt/no'de", '/opt/no\\de', '/opt/no\nde']) {
      expect(() => unitText({ ...plain, node })).toThrow(/systemd cannot run/);
    }
  });

  it.skipIf(!existsSync('/usr/bin/systemd-analyze'))('is valid to systemd itself', async () => {
    const directory = await temporaryDirectory();
    const node = join(directory, 'my $node 100% {x}', 'node');
    await mkdir(dirname(node), { recursive: true });
    await writeFile(node, '#!/bin/sh\n');
    await chmod(node, 0o755);
    const script = join(directory, 'a "b" \'c\' $d\\ \n%h;.js');
    const path = join(directory, 'svc-relay.service');
    await writeFile(path, unitText({ node, script, agentHome: join(directory, 'h %h "$HOME"'), path: '/usr/bin' }));
    const env = { ...process.env, XDG_RUNTIME_DIR: directory, HOME: directory };
    const said = await new Promise((resolve) => {
      execFile('/usr/bin/systemd-analyze', ['--user', 'verify', path], { env }, (error, stdout, stderr) =>
        resolve([error?.code ?? 0, stdout, stderr]),
      );
    });
    expect(said).toEqual([0, '', '']);
  });
});
