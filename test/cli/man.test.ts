import { execFileSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { nestedPrograms, programs } from '../../cli/commands.ts';
import { manPage } from '../../cli/man.ts';

const page = await manPage('1.0.0');
const lines = page.split('\n');
const plain = page.replaceAll('\\-', '-').replaceAll('\\(dq', '"').replaceAll('\\&', '').replaceAll('\\e', '\\');

describe('svc(1) (contract 11 §4)', () => {
  it('has every command with its summary, and its options', () => {
    const all = [
      ['svc', programs.svc.commands] as const,
      ...Object.entries(nestedPrograms).map(([name, { commands }]) => [`svc ${name}`, commands] as const),
    ];
    for (const [program, commands] of all) {
      for (const { usage, summary } of commands) {
        expect(plain).toContain(`.SS "${program} ${usage}"`);
        expect(plain).toContain(summary.slice(1));
      }
    }
    for (const option of ['--without <list>', '--relay <url>', '-f, --follow'])
      expect(plain).toContain(`.B "${option}"`);
  });

  it('is a page of man(7): known requests alone, sections in order, no line that is a request by accident', () => {
    const known = new Set(['TH', 'SH', 'SS', 'TP', 'B', 'PP', 'nf', 'fi']);
    const requests = lines.filter((line) => /^[.']/.test(line));
    expect(requests.filter((line) => !known.has(line.slice(1).split(' ')[0] ?? ''))).toEqual([]);
    expect(lines[0]).toBe('.TH SVC 1 "" "svc\\-relay 1.0.0" "User Commands"');
    expect(lines.filter((line) => line.startsWith('.SH')).map((line) => line.slice(4))).toEqual([
      'NAME',
      'SYNOPSIS',
      'DESCRIPTION',
      'OPTIONS',
      'COMMANDS',
      'EXIT STATUS',
      'FILES',
    ]);
    expect(lines.filter((line) => line === '.nf')).toHaveLength(lines.filter((line) => line === '.fi').length);
    // Each word of a request is quoted whole.
    for (const line of requests) expect((line.match(/"/g) ?? []).length % 2, line).toBe(0);
    expect(lines.slice(0, -1).every((line) => line !== '')).toBe(true);
  });

  it('is printed by groff without a warning, where there is one', (context) => {
    let warnings: string;
    try {
      execFileSync('groff', ['--version'], { stdio: 'ignore' });
      warnings = execFileSync('sh', ['-c', 'groff -man -Tascii -ww -z 2>&1'], { input: page, encoding: 'utf8' });
    } catch {
      process.stderr.write('SKIPPED: groff is not installed\n');
      return context.skip('groff is not installed');
    }
    expect(warnings).toBe('');
  });
});
