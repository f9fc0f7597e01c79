import { describe, expect, it } from 'vitest';
import { MAX_SKILLS } from '../../../lib/profiles/skills.ts';
import { agent } from './support.ts';

describe('skill_count (contract 07 §1.5)', () => {
  it('stops at 2000', async () => {
    const skills = Array.from({ length: MAX_SKILLS + 1 }, (_, index) => [`skills/c/${index}/SKILL.md`, '']);
    const { profiles, row } = await agent({ 'config.yaml': '', ...Object.fromEntries(skills) });
    await profiles.rescan();
    expect(row().skill_count).toBe(MAX_SKILLS);
  });
});
