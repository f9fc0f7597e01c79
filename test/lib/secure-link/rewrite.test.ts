import { describe, expect, it } from 'vitest';
import {
  rewriteCookie,
  rewriteHtml,
  rewriteJson,
  rewriteLocation,
  rewritingOf,
} from '../../../lib/secure-link/rewrite.ts';

const HOST = '127.0.0.1:9119';

describe('rewriting below /dashboard (contract 08 §4.3)', () => {
  it.each([
    ['a=b', 'a=b; Path=/dashboard'],
    ['a=b; path=/x; HttpOnly; Domain=evil.test; SameSite=Strict', 'a=b; Path=/dashboard; HttpOnly; SameSite=Strict'],
    ['a=b;PATH=/;Path=/other;Secure', 'a=b; Path=/dashboard;Secure'],
    ['domain=x; Max-Age=1', 'domain=x; Max-Age=1; Path=/dashboard'],
    ['', '; Path=/dashboard'],
  ])('cookie %s becomes %s', (value, rewritten) => {
    expect(rewriteCookie(value)).toBe(rewritten);
  });

  it.each([
    ['/', '/dashboard/'],
    ['/login?next=/x', '/dashboard/login?next=/x'],
    ['/dashboard', '/dashboard'],
    ['/dashboard?x', '/dashboard?x'],
    ['/dashboard/x', '/dashboard/x'],
    ['/dashboards', '/dashboard/dashboards'],
    ['http://127.0.0.1:9119/a?b=c', '/dashboard/a?b=c'],
    ['http://localhost:9119/dashboard/x', '/dashboard/x'],
    ['http://127.0.0.1:9118/a', null],
    ['https://id.test/authorize?x', 'https://id.test/authorize?x'],
    ['http://id.test/', null],
    ['//evil.test/', null],
    ['javascript:alert(1)', null],
    ['http://127.0.0.1:9119@evil.test/', null],
    ['/\\evil.test', '/dashboard/\\evil.test'],
    ['https://', null],
  ])('location %s becomes %s', (value, rewritten) => {
    expect(rewriteLocation(value, HOST)).toBe(rewritten);
  });

  it.each([
    [`fetch('/auth/x')`, `fetch('/dashboard/auth/x')`],
    [`fetch("/auth/x")`, `fetch("/dashboard/auth/x")`],
    [`<a href="/auth/a">`, `<a href="/dashboard/auth/a">`],
    [`<a href='/auth/a'>`, `<a href='/dashboard/auth/a'>`],
    [`<a href="/login">`, `<a href="/dashboard/login">`],
    [`<a href='/login?x'>`, `<a href='/dashboard/login?x'>`],
    [`url('/fonts/a.woff')`, `url('/dashboard/fonts/a.woff')`],
    [`url("/fonts/a.woff")`, `url("/dashboard/fonts/a.woff")`],
    [
      `window.location.assign((data && data.next) || '/');`,
      `window.location.assign((data && data.next) || '/dashboard/');`,
    ],
    [
      `window.location.assign((data && data.next) || "/")`,
      `window.location.assign((data && data.next) || "/dashboard/")`,
    ],
    [
      `<a href="/dashboard/auth/a"> fetch(/auth/) href=/login`,
      `<a href="/dashboard/auth/a"> fetch(/auth/) href=/login`,
    ],
  ])('%s becomes %s', (html, rewritten) => {
    expect(rewriteHtml(html)).toBe(rewritten);
    expect(rewriteHtml(rewritten)).toBe(rewritten);
  });

  it.each([
    ['{"ok":true,"next":"/"}', '{"ok":true,"next":"/dashboard/"}'],
    ['{"next":"/chat?a=1"}', '{"next":"/dashboard/chat?a=1"}'],
    [String.raw`{"\u006eext":"/x"}`, '{"next":"/dashboard/x"}'],
    ['{"next":"/dashboard/x"}', '{"next":"/dashboard/x"}'],
    ['{"next":"//evil"}', '{"next":"//evil"}'],
    ['{"next":7, "big":12345678901234567890}', '{"next":7, "big":12345678901234567890}'],
    ['["next"]', '["next"]'],
    ['{"a":{"next":"/x"}}', '{"a":{"next":"/x"}}'],
    ['{"next":"/x"', '{"next":"/x"'],
  ])('%s becomes %s', (json, rewritten) => {
    expect(rewriteJson(json)).toBe(rewritten);
  });

  it('looks at HTML and JSON only', () => {
    expect(rewritingOf('text/html; charset=utf-8')).toBe('html');
    expect(rewritingOf('Application/JSON')).toBe('json');
    for (const type of [undefined, '', 'text/plain', 'text/event-stream', 'application/jsonl']) {
      expect(rewritingOf(type)).toBeNull();
    }
  });
});
