import { expect, it } from 'vitest';
import { describeInBrowser, expectAccessible, sendsByConfirming, smallTargets } from '../support/browser.ts';
import { useChat } from '../support/chat-page.ts';

describeInBrowser('the chat of the app (issue 17)', ({ open }) => {
  const chat = useChat({ open });
  const { say } = chat;

  it('shows text, reasoning and tools as they come, and finds them again', async () => {
    chat.api.onStream(async (exchange) => {
      expect(JSON.parse(exchange.body)).toMatchObject({ message: 'What is the weather?' });
      exchange.open();
      await exchange.event({ type: 'reasoning_delta', delta: 'Look outside.' });
      await exchange.event({ type: 'tool.started', tool_name: 'weather', tool_call_id: 'c1', args: { city: 'Bern' } });
      await exchange.event({ type: 'tool.completed', tool_name: 'weather', tool_call_id: 'c1', result: 'sunny' });
      await exchange.event({ type: 'assistant.delta', delta: 'It is **sunny**, run:\n```sh\ncurl wttr.in\n```\n' });
      await exchange.event({ type: 'assistant.delta', delta: '<img src=x onerror=alert(1)>' });
      await exchange.event({ type: 'run.completed' });
      exchange.end();
    });
    const { page } = await chat.open();
    await say(page, 'What is the weather?');
    const answer = page.getByRole('article', { name: 'Agent' });
    await answer.getByText('<img src=x onerror=alert(1)>').waitFor();
    await page.getByText('The agent is at work').waitFor({ state: 'detached' });
    expect(await answer.locator('strong').textContent()).toBe('sunny');
    expect(await answer.locator('.prose pre').textContent()).toBe('curl wttr.in');
    const mark = () =>
      answer.getByText('Reasoning').evaluate((summary) => getComputedStyle(summary, '::before').content);
    expect(await mark()).toContain('▸');
    await answer.getByText('Reasoning').click();
    expect(await mark()).toContain('▾');
    await answer.getByText('Look outside.').waitFor();
    await answer.getByText('weather').click();
    await answer.getByText('"city": "Bern"').waitFor();
    await expectAccessible(page);
    expect(await smallTargets(page)).toEqual([]);
    await expect.poll(() => page.url()).toMatch(/#\/chat\/s1$/);
    await page.reload();
    await answer.getByText('<img src=x onerror=alert(1)>').waitFor();
  });

  it('stops the agent, and keeps what it had said', async () => {
    let ended: () => void = () => {};
    const abandoned = new Promise<void>((resolve) => {
      ended = resolve;
    });
    chat.api.onStream(async (exchange) => {
      exchange.open();
      await exchange.event({ type: 'assistant.delta', delta: 'One, two' });
      await expect.poll(() => exchange.abandoned).toBe(true);
      ended();
    });
    const { page } = await chat.open();
    await say(page, 'Count.');
    await page.getByText('One, two').waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.getByText('Stopped.').waitFor();
    await page.getByText('One, two').waitFor();
    await abandoned;
    await page.getByRole('button', { name: 'Send' }).waitFor();
  });

  it('leaves the Enter of an input method to it, and sends by the next one', async () => {
    chat.answering('Hello.');
    const { page } = await chat.open('new', { device: 'desktop' });
    const field = page.getByRole('textbox', { name: 'Message' });
    await field.fill('こんにちは');
    expect(await sendsByConfirming(field)).toBe(false);
    await field.press('Enter');
    await page.getByRole('article', { name: 'Agent' }).getByText('Hello.').waitFor();
    await page.goto(chat.at('').replace('/chat/', '/inbox/phone'));
    const reply = page.getByRole('textbox', { name: 'Reply' });
    await reply.fill('そして');
    expect(await sendsByConfirming(reply)).toBe(false);
    expect(await reply.inputValue()).toBe('そして');
  });

  it('tells why the agent failed, and lists its conversations', async () => {
    chat.api.onAny((exchange) => {
      if (exchange.method === 'GET') {
        return exchange.answer(200, { sessions: [{ id: 'old', title: 'Taxes <2025>', model: 'm', updated_at: 1 }] });
      }
      exchange.answer(500, 'out of tokens');
    });
    // Nothing was ever said in it.
    const { page } = await chat.open('', { allowed: /status of 404/ });
    await page.getByText('Taxes <2025>').waitFor();
    await expectAccessible(page);
    await page.getByText('Taxes <2025>').click();
    await page.getByText('This browser does not have the earlier messages').waitFor();
    await say(page, 'Go on.');
    await page.getByText(/API server error \(500\)/).waitFor();
    await expectAccessible(page);
  });
});
