import { readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { variables } from '../../lib/config.ts';

const row = ({ name, fallback, meaning }: { name: string; fallback: string; meaning: string }) =>
  `| \`${name}\` | ${fallback === 'unset' ? 'unset' : `\`${fallback}\``} | ${meaning.replaceAll('|', '\\|')} |`;

it('the README lists every variable as lib/config.ts has it', async () => {
  const readme = await readFile('README.md', 'utf8');
  const section = readme.split('<!-- variables -->')[1]?.split('<!-- /variables -->')[0]?.trim();
  expect(section?.split('\n')).toEqual(Object.values(variables).map(row));
});
