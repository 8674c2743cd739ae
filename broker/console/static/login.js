// A browser that follows a link on another site does not send its cookie, but it does from here: a user who has already
// logged in is redirected to the requested page.
"use strict";
fetch("/session").then((answer) => {
  if (answer.status === 204) window.location.replace(document.querySelector("input[name=next]").value || "/");
}).catch(() => { /* the user can use the form */ });
