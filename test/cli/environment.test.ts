import { join } from 'node:path';
import { expect, test } from 'vitest';
import { loadEnvironment } from '../../cli/environment.ts';
import { agentHome } from '../support/cli.ts';

test('the file overrides the process and does not move the home (07 §6.1)', () => {
  const home = agentHome('export RELAY_PORT=9001\nSVC_HOME=/elsewhere\n');
  const { env, directories, fileLoaded } = loadEnvironment({ SVC_HOME: home, RELAY_PORT: '1', KEPT: 'yes' });
  expect(env).toMatchObject({ RELAY_PORT: '9001', KEPT: 'yes', SVC_HOME: home });
  expect(directories.agentHome).toBe(home);
  expect(fileLoaded).toBe(true);
});

test('a # begins a comment only after white space (07 §6.1)', () => {
  const home = agentHome('A=#key\nB= # all of it\nC=x#y # rest\nD=\t#\nE=#\n');
  expect(loadEnvironment({ SVC_HOME: home }).env).toMatchObject({ A: '#key', B: '', C: 'x#y', D: '', E: '#' });
});

test('a relative home is refused', () => {
  expect(() => loadEnvironment({ SVC_HOME: 'mine' })).toThrow(/SVC_HOME is relative \('mine'\).*\/mine$/);
});

test('without a file, the process environment applies, and ~/.svc is the home', () => {
  const home = agentHome();
  const loaded = loadEnvironment({ HOME: home, RELAY_PORT: '2' });
  expect(loaded).toMatchObject({ directories: { home, agentHome: join(home, '.svc') }, fileLoaded: false });
  expect(loaded.env.RELAY_PORT).toBe('2');
  expect(loadEnvironment({ HOME: home, SVC_HOME: '~/mine' }).directories.agentHome).toBe(join(home, 'mine'));
});
