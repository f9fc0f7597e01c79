/** Elements to focus. No fields: their focus would open the keyboard of a phone. */
const REACHABLE = 'a[href], button:not(:disabled), summary, [tabindex="-1"]';

/** Milliseconds for which a button is disabled because it works. */
const BUSY = 1000;

/**
 * Keeps the focus inside the page: a tap on `Yes` takes the button away, and the focus would fall to the body, from where
 * a keyboard begins anew at the top. It goes to what is nearest in the page, and back to a button that was disabled for a
 * while. `fallback` is where a screen begins.
 */
export function keepFocus(root: HTMLElement, fallback: () => HTMLElement | null): () => void {
  let last: HTMLElement | null = null;
  /** Ancestors of `last`, nearest first, as they were while it was in the page. */
  let ancestors: HTMLElement[] = [];
  let wait: ReturnType<typeof setTimeout> | undefined;

  const onFocus = ({ target }: FocusEvent) => {
    if (!(target instanceof HTMLElement) || target === root) return;
    last = target;
    ancestors = [];
    for (let above = target.parentElement; above && above !== root; above = above.parentElement) ancestors.push(above);
  };
  const onBlur = () => {
    // A person who taps beside everything wants the focus nowhere.
    setTimeout(() => {
      if (isLost() && last?.isConnected && !last.matches(':disabled')) last = null;
    });
  };
  const isLost = () => document.activeElement === null || document.activeElement === document.body;

  function restore(): void {
    if (!last || !isLost()) return;
    if (last.isConnected && !last.matches(':disabled')) last.focus();
    else if (!last.isConnected) goNear();
    else wait ??= setTimeout(leave, BUSY);
  }
  /** An element that is still disabled has done its work. */
  function leave(): void {
    wait = undefined;
    if (last?.matches(':disabled') && isLost()) goNear();
  }
  function goNear(): void {
    const near = ancestors.find((element) => element.isConnected);
    // Beside a row that is gone are only rows of something else.
    const isScreen = !near || near.matches('main, .screen, ul, ol') || !root.contains(near);
    const target = isScreen ? null : near.querySelector<HTMLElement>(REACHABLE);
    (target ?? fallback())?.focus({ preventScroll: target === null });
  }
  const observer = new MutationObserver(() => {
    // The page may be about to put the focus somewhere itself.
    if (last && isLost()) requestAnimationFrame(restore);
  });

  root.addEventListener('focusin', onFocus);
  root.addEventListener('focusout', onBlur);
  observer.observe(root, { childList: true, subtree: true, attributes: true, attributeFilter: ['disabled'] });
  return () => {
    root.removeEventListener('focusin', onFocus);
    root.removeEventListener('focusout', onBlur);
    observer.disconnect();
    clearTimeout(wait);
  };
}
